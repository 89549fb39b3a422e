const { Worker, isMainThread, workerData, parentPort } = require('worker_threads');
const { fork, spawn, spawnSync, execFileSync } = require('child_process');
const cluster = require('cluster');
const crypto = require('crypto');
const zlib = require('zlib');

if (!isMainThread) {
  const counts = new Int32Array(workerData.shared);
  for (let i = 0; i < 20000; i++) Atomics.add(counts, 0, 1);
  const blocks = [];
  for (let i = 0; i < 200; i++) blocks.push(Buffer.alloc(10000, i));
  parentPort.postMessage({ number: workerData.number, sum: blocks.reduce((sum, b) => sum + b[5], 0) });
} else if (cluster.isWorker) {
  process.on('message', (m) => process.send(m + 1, () => process.disconnect()));
} else if (process.argv[2] === 'child') {
  process.on('message', (m) => {
    process.send({ twice: m.value * 2, arguments: process.argv.slice(3) }, () => process.exit(4));
  });
} else {
  main();
}

function once(emitter, name) { return new Promise((resolve) => emitter.once(name, (...a) => resolve(a))); }

function both(emitter) { return Promise.all([once(emitter, 'message'), once(emitter, 'exit')]); }

async function main() {
  const shared = new SharedArrayBuffer(4);
  const results = await Promise.all([...Array(6).keys()].map(async (number) => {
    const worker = new Worker(__filename, { workerData: { shared, number } });
    const [[result], [code]] = await both(worker);
    return [result.number, result.sum, code];
  }));
  console.log('workers', JSON.stringify(results), new Int32Array(shared)[0]);

  const stopped = new Worker('for (;;) {}', { eval: true });
  await once(stopped, 'online');
  console.log('terminated', await stopped.terminate());

  const limited = new Worker('const a = []; for (;;) a.push(new Array(10000).fill(1));', { eval: true, resourceLimits: { maxOldGenerationSizeMb: 16 } });
  console.log('limited', (await once(limited, 'error'))[0].code);

  const child = fork(__filename, ['child', 'a b', 'c']);
  child.send({ value: 21 });
  const [[answer], ended] = await both(child);
  console.log('fork', JSON.stringify(answer), ended);

  const shell = spawnSync('sh', ['-c', 'cat; echo problem >&2; kill -TERM $$'], { input: 'x'.repeat(100000) });
  console.log('spawnSync', shell.stdout.length, String(shell.stderr).trim(), shell.status, shell.signal);
  console.log('exec', execFileSync(process.execPath, ['-e', 'console.log(process.argv0.length > 0, 6 * 7)']).toString().trim());
  console.log('environment', Object.keys(process.env).filter((n) => /^(HOME|TMPDIR|LANG)$/.test(n)).sort().join());
  const asleep = spawn('sleep', ['1000']);
  await once(asleep, 'spawn');
  asleep.kill('SIGKILL');
  console.log('killed', await once(asleep, 'exit'));
  const missing = spawn('/nonexistent/program');
  console.log('missing', (await once(missing, 'error'))[0].code);

  const cores = [...Array(2).keys()].map(async (i) => {
    const worker = cluster.fork();
    worker.send(i);
    const [[reply], [code]] = await both(worker);
    return [reply, code];
  });
  console.log('cluster', JSON.stringify(await Promise.all(cores)));

  const digests = await Promise.all([...Array(8).keys()].map((i) => new Promise((resolve) =>
    crypto.pbkdf2('secret' + i, 'salt', 2000, 16, 'sha256', (_, key) => resolve(key.toString('hex'))))));
  console.log('pool', crypto.createHash('md5').update(digests.join()).digest('hex'));
  const data = Buffer.alloc(3000000, 'some text and more of it ');
  const packed = await new Promise((resolve) => zlib.gzip(data, (_, b) => resolve(b)));
  console.log('zlib', zlib.gunzipSync(packed).equals(data));

  process.once('SIGUSR2', () => {
    console.log('SIGUSR2');
    process.on('exit', (code) => console.log('exit', code));
    setTimeout(() => process.exit(7), 10);
  });
  process.kill(process.pid, 'SIGUSR2');
  setTimeout(() => {}, 20000);
}
