// npm run page -- OUT.html [EVENTS] [PARAMS]: writes the page of a synthetic training run, for manual tests and the benchmark.
import fs from 'node:fs';
import {page} from './encode.ts';
import {training} from './synthetic.ts';

const [out, events = '100000', params = '700'] = process.argv.slice(2);
fs.writeFileSync(out!, page(training(Number(events), Number(params))));
console.log(`${out}: ${fs.statSync(out!).size >> 10} KiB`);
