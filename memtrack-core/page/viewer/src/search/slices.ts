// Splits long work into slices, so that the page stays responsive.

/** The duration of a slice in milliseconds. */
const SLICE_MS = 10;

/** A cancellable job, which stops when its result is no longer wanted. */
export interface Job { readonly wanted: boolean }

/** Calls `work` for parts of 0..count; returns false if the job was cancelled. */
export async function in_slices(count: number, part: number, job: Job, work: (from: number, to: number) => void): Promise<boolean> {
  let since = performance.now();
  for (let from = 0; from < count; from += part) {
    work(from, Math.min(count, from + part));
    if (performance.now() - since > SLICE_MS) {
      await next_turn();
      if (!job.wanted) return false;
      since = performance.now();
    }
  }
  return job.wanted;
}

/** Waits for the next turn of the event loop. A timer would wait for 4 ms each time; a message does not. */
function next_turn(): Promise<void> {
  return new Promise(resolve => {
    const {port1, port2} = new MessageChannel();
    port1.onmessage = () => { port1.close(); resolve(); };
    port2.postMessage(null);
  });
}
