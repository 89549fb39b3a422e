// Making elements without a framework and without markup from data.

type Props = {[name: string]: string | number | boolean | ((event: never) => void) | undefined};

/** An element with a class, properties (attributes; functions are listeners) and children (texts or elements). */
export function el<K extends keyof HTMLElementTagNameMap>(tag: K, cls = '', props: Props = {}, ...children: (Node | string)[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (cls) element.className = cls;
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === 'function') element.addEventListener(name, value as EventListener);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children);
  return element;
}

/** Sets the text only when it differs: most of a step's rows stay what they were. */
export function set_text(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
