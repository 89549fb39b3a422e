// Long work in slices, so that the page answers keys and the pointer meanwhile.

/** Milliseconds of work between two chances for the page to react. */
const SLICE = 10;

/** Says when work is to stop: its result is wanted no more. */
export interface Wanted { readonly wanted: boolean }

/** Calls `work` for parts of 0..count; false if it was stopped. */
export async function in_slices(count: number, part: number, whether: Wanted, work: (from: number, to: number) => void): Promise<boolean> {
  let since = performance.now();
  for (let from = 0; from < count; from += part) {
    work(from, Math.min(count, from + part));
    if (performance.now() - since > SLICE) {
      await turn();
      if (!whether.wanted) return false;
      since = performance.now();
    }
  }
  return whether.wanted;
}

/** The next turn of the event loop. A timer would wait for 4 ms each time; a message does not. */
function turn(): Promise<void> {
  return new Promise(resolve => {
    const {port1, port2} = new MessageChannel();
    port1.onmessage = () => { port1.close(); resolve(); };
    port2.postMessage(null);
  });
}
