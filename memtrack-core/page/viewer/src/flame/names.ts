// Names of functions as short as they stay clear.

/** The name without its list of parameters, which symbolised C++ has: `at::add(at::Tensor const&)` is `at::add`. */
export function short_name(name: string): string {
  const last = name.search(/\)( const| volatile| &&?| \[clone [^\]]*\])*$/);
  if (last < 1) return name;
  let depth = 0;
  for (let i = last; i > 0; i--) {
    if (name[i] === ')') depth++;
    // What is all parentheses, or begins with them, is a name of its own: `(anonymous namespace)`, `operator()`.
    else if (name[i] === '(' && --depth === 0) return /(::|operator|^)$/.test(name.slice(0, i)) ? name : name.slice(0, i);
  }
  return name;
}
