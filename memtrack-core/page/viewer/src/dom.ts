// Elements from code. Data gets into the page as text only: there is no way here to set markup.

type Child = Node | string | null | undefined | false;

/** An element with attributes, listeners (`on…`) and children. */
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

/** Puts children into an element in place of what is there. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren(...children.filter((c): c is Node | string => c !== null && c !== undefined && c !== false));
}

/** The value of one of the page's colours in the theme that is on. */
export function css_color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Sets a text only where it differs: most of what a step redraws stays what it was. */
export function set_text(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
