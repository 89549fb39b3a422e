// Creates elements. Data enters the page as text only: no function here sets markup.

type Child = Node | string | null | undefined | false;

/** Creates an element with attributes, listeners (`on…`) and children. */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Record<string, unknown> = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name.slice(2), value as EventListener);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  fill(element, ...children);
  return element;
}

/** Replaces the children of an element. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren(...children.filter((c): c is Node | string => c !== null && c !== undefined && c !== false));
}

/** Returns one of the page's colours in the current theme. */
export function css_color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Sets an element's text if it differs. Most texts stay the same from step to step. */
export function set_text(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
