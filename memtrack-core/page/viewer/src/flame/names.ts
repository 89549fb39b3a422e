// Shortens names of functions.

/** Returns a name without the list of parameters of demangled C++: `at::add` for `at::add(at::Tensor const&)`. */
export function short_name(name: string): string {
  const last = name.search(/\)( const| volatile| &&?| \[clone [^\]]*\])*$/);
  if (last < 1) return name;
  let depth = 0;
  for (let i = last; i > 0; i--) {
    if (name[i] === ')') depth++;
    // Parentheses may be part of a name: `(anonymous namespace)`, `operator()`.
    else if (name[i] === '(' && --depth === 0) return /(::|operator|^)$/.test(name.slice(0, i)) ? name : name.slice(0, i);
  }
  return name;
}
