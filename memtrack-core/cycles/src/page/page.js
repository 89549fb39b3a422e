// Moves the picture, and shows the details of a value beside it. It does not parse text as HTML: all elements are copies of
// elements of the page.
(() => {
  'use strict';
  const svg = document.querySelector('svg.graph'), view = document.getElementById('view');
  if (!svg || !view) return;
  const pane = document.getElementById('pane'), bar = document.getElementById('bar');
  const all = svg.viewBox.baseVal, whole = {x: all.x, y: all.y, width: all.width, height: all.height};
  const still = matchMedia('(prefers-reduced-motion: reduce)');
  const nodes = [...svg.querySelectorAll('.node')], lines = [...svg.querySelectorAll('.line')];
  const node_of = new Map(nodes.map(node => [node.dataset.node, node]));
  const initial = [...pane.childNodes].map(child => child.cloneNode(true));
  let selected = null, box = {...whole};

  // ---- the window

  const aspect = () => view.clientWidth / Math.max(1, view.clientHeight);
  // Expands a part of the picture to the aspect ratio of the view.
  function fitted(wanted) {
    const box = {...wanted}, ratio = aspect();
    if (box.width / box.height < ratio) { const width = box.height * ratio; box.x -= (width - box.width) / 2; box.width = width; }
    else { const height = box.width / ratio; box.y -= (height - box.height) / 2; box.height = height; }
    return box;
  }
  function show(next) { box = next; svg.setAttribute('viewBox', `${box.x} ${box.y} ${box.width} ${box.height}`); }
  let moving = 0;
  function move(next) {
    cancelAnimationFrame(moving);
    if (still.matches) return show(next);
    const from = {...box}, begin = performance.now();
    const step = now => {
      const t = Math.max(0, Math.min(1, (now - begin) / 220)), e = t * (2 - t), mix = key => from[key] + (next[key] - from[key]) * e;
      show({x: mix('x'), y: mix('y'), width: mix('width'), height: mix('height')});
      if (t < 1) moving = requestAnimationFrame(step);
    };
    moving = requestAnimationFrame(step);
  }
  function zoom(factor, x = box.x + box.width / 2, y = box.y + box.height / 2) {
    cancelAnimationFrame(moving);
    const width = Math.min(Math.max(box.width * factor, 120), Math.max(whole.width, whole.height * aspect()) * 4), f = width / box.width;
    show({x: x - (x - box.x) * f, y: y - (y - box.y) * f, width, height: box.height * f});
  }
  const fit = () => move(fitted(whole));
  // Returns a window around elements, with a margin, that does not enlarge them beyond their natural size.
  function frame(elements) {
    const low = {x: Infinity, y: Infinity}, high = {x: -Infinity, y: -Infinity}, to = svg.getScreenCTM().inverse();
    for (const element of elements) {
      const rect = element.getBoundingClientRect();
      for (const [x, y] of [[rect.left, rect.top], [rect.right, rect.bottom]]) {
        const at = new DOMPoint(x, y).matrixTransform(to);
        low.x = Math.min(low.x, at.x); low.y = Math.min(low.y, at.y); high.x = Math.max(high.x, at.x); high.y = Math.max(high.y, at.y);
      }
    }
    const width = Math.max(high.x - low.x + 60, view.clientWidth), height = Math.max(high.y - low.y + 60, view.clientHeight);
    return fitted({x: (low.x + high.x - width) / 2, y: (low.y + high.y - height) / 2, width, height});
  }
  // Centres a value, and enlarges the picture if it is too small to be readable.
  function centre(node) {
    const at = frame([node]);
    if (box.width < at.width * 1.6) { at.x += (at.width - box.width) / 2; at.y += (at.height - box.height) / 2; at.width = box.width; at.height = box.height; }
    move(at);
  }

  // ---- the details of a value

  const create = (name, text) => { const element = document.createElement(name); element.textContent = text; return element; };
  const copies = cell => [...cell.childNodes].map(child => child.cloneNode(true));
  let shown_number = null;
  function show_details(number) {
    if (shown_number === number) return;
    shown_number = number;
    const row = number === null ? null : document.getElementById('v' + number);
    if (!row) { pane.replaceChildren(...initial.map(child => child.cloneNode(true))); return; }
    const [memory, where, to, from, kept_by] = row.querySelectorAll('td'), heading = create('h2', '');
    heading.append(...copies(row.querySelector('th')));
    const parts = [heading], sides = create('div', '');
    for (const [cell, title] of [[memory, 'Device memory'], [where, ''], [kept_by, 'Kept alive by']]) {
      if (!cell || !cell.hasChildNodes()) continue;
      if (title) parts.push(create('h3', title));
      parts.push(...copies(cell));
    }
    sides.className = 'sides';
    for (const [cell, title] of [[to, 'Refers to'], [from, 'Referred to by']]) {
      const side = create('div', '');
      side.append(create('h3', title), ...copies(cell));
      if (!cell.hasChildNodes()) side.append(create('p', 'none'));
      sides.append(side);
    }
    pane.replaceChildren(...parts, sides);
    pane.querySelectorAll('[id]').forEach(element => element.removeAttribute('id'));
    pane.scrollTop = 0;
  }

  // ---- the selection

  function mark(selected_elements, neighbours) {
    svg.classList.toggle('chosen', selected_elements.size > 0);
    for (const element of svg.querySelectorAll('.on, .near')) element.classList.remove('on', 'near');
    selected_elements.forEach(element => element.classList.add('on'));
    neighbours.forEach(element => element.classList.add('near'));
    document.querySelectorAll('.cycle.on').forEach(element => element.classList.remove('on'));
  }
  function select(number, {focus = true, scroll = true} = {}) {
    const node = node_of.get(number);
    if (!node) return false;
    const elements = new Set([node]), neighbours = new Set();
    for (const line of lines) {
      if (line.dataset.from !== number && line.dataset.to !== number) continue;
      elements.add(line);
      neighbours.add(node_of.get(line.dataset.from)).add(node_of.get(line.dataset.to));
    }
    mark(elements, neighbours);
    for (const hull of svg.querySelectorAll('.hull')) hull.classList.add('on');
    if (selected) selected.tabIndex = -1;
    selected = node;
    node.tabIndex = 0;
    show_details(number);
    if (focus) node.focus({preventScroll: true});
    if (scroll) centre(node);
    return true;
  }
  // The links of a finding are values of its cycle and of the path to device memory. Other values of the cycle have its badge.
  const linked = item => [...new Set([...item.querySelectorAll('a[href^="#n"]')].map(link => node_of.get(link.hash.slice(2))))];
  function members(item) {
    const named = new Set(linked(item)), badge = String(+item.dataset.cycle + 1);
    return nodes.filter(node => named.has(node) || node.querySelector('.badge text')?.textContent === badge);
  }
  function choose_cycle(number) {
    const hull = svg.querySelector(`.hull[data-cycle="${CSS.escape(number)}"]`), item = document.querySelector(`.cycle[data-cycle="${CSS.escape(number)}"]`);
    if (!hull || !item) return;
    const elements = new Set([hull]);
    members(item).forEach(node => elements.add(node));
    for (const line of lines) if (elements.has(node_of.get(line.dataset.from)) && elements.has(node_of.get(line.dataset.to))) elements.add(line);
    mark(elements, []);
    item.classList.add('on');
    const target = frame([...elements]);
    // If the cycle is too large to be readable, show only the values of the finding.
    move(target.width > view.clientWidth * 2.5 ? frame(linked(item)) : target);
    const first = [...elements].find(element => element.classList.contains('memory')) ?? [...elements].find(element => element.classList.contains('node'));
    if (first) show_details(first.dataset.node);
  }
  function deselect() {
    mark(new Set(), []);
    if (selected) selected.tabIndex = -1;
    selected = null;
    nodes[0].tabIndex = 0;
    show_details(null);
  }
  // Selects the other end of a reference: its target, or its source if the target is already selected.
  function follow(line) {
    const {from, to} = line.dataset;
    select(selected && selected.dataset.node === to ? from : to);
  }
  // Right follows a reference, left goes back along one, up and down go through all values.
  function step(key) {
    const at = selected ?? nodes[0], number = at.dataset.node;
    if (key === 'ArrowRight' || key === 'ArrowLeft') {
      const [near, far] = key === 'ArrowRight' ? ['from', 'to'] : ['to', 'from'];
      const line = lines.find(line => line.dataset[near] === number && line.dataset[far] !== number);
      return line && select(line.dataset[far]);
    }
    select(nodes[(nodes.indexOf(at) + (key === 'ArrowDown' ? 1 : nodes.length - 1)) % nodes.length].dataset.node);
  }

  // ---- the bar

  const search = document.createElement('input'), count = document.createElement('output');
  search.type = 'search';
  search.placeholder = 'Find a value';
  search.setAttribute('aria-label', 'Find a value by its label');
  for (const [text, title, action] of [['+', 'Larger (+)', () => zoom(.8)], ['−', 'Smaller (−)', () => zoom(1.25)], ['All', 'The whole picture (0)', fit]]) {
    const button = create('button', text);
    button.type = 'button';
    button.title = title;
    button.setAttribute('aria-label', title);
    button.addEventListener('click', action);
    bar.append(button);
  }
  bar.append(search, count);
  bar.hidden = false;
  let found = [], current = -1;
  const labels = new Map(nodes.map(node => [node, (document.getElementById('v' + node.dataset.node)?.querySelector('th')?.textContent ?? '').toLowerCase()]));
  search.addEventListener('input', () => {
    const text = search.value.trim().toLowerCase();
    found = text ? nodes.filter(node => labels.get(node).includes(text)) : [];
    current = -1;
    nodes.forEach(node => node.classList.toggle('found', found.includes(node)));
    count.textContent = text ? `${found.length} found` : '';
  });
  search.addEventListener('keydown', event => {
    if (event.key === 'Escape') { search.value = ''; search.dispatchEvent(new Event('input')); }
    if (event.key !== 'Enter' || !found.length) return;
    event.preventDefault();
    current = (current + (event.shiftKey ? found.length - 1 : 1)) % found.length;
    count.textContent = `${current + 1} of ${found.length}`;
    select(found[current].dataset.node, {focus: false});
  });

  // ---- pointer and keys

  // The picture is a single stop of the Tab key; arrow keys move within it.
  for (const link of [...nodes, ...lines]) link.tabIndex = -1;
  nodes[0].tabIndex = 0;
  // The pane replaces the tooltips.
  svg.querySelectorAll('.node > title').forEach(title => title.remove());
  view.classList.add('live');
  pane.hidden = false;

  let drag = null, dragged = false;
  view.addEventListener('pointerdown', event => {
    if (event.button === 0) { drag = {x: event.clientX, y: event.clientY, box: {...box}}; dragged = false; }
  });
  view.addEventListener('pointermove', event => {
    if (!drag) return;
    const x = event.clientX - drag.x, y = event.clientY - drag.y, scale = drag.box.width / view.clientWidth;
    if (!dragged && Math.hypot(x, y) < 4) return;
    if (!dragged) { dragged = true; cancelAnimationFrame(moving); view.setPointerCapture(event.pointerId); }
    show({...drag.box, x: drag.box.x - x * scale, y: drag.box.y - y * scale});
  });
  for (const end of ['pointerup', 'pointercancel']) view.addEventListener(end, () => { drag = null; });
  view.addEventListener('dragstart', event => event.preventDefault());
  view.addEventListener('wheel', event => {
    event.preventDefault();
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / (event.deltaMode ? 12 : 400)))), at.x, at.y);
  }, {passive: false});
  view.addEventListener('click', event => {
    const link = event.target.closest?.('a');
    if (link) event.preventDefault();
    if (dragged) { dragged = false; return; }
    if (!link) deselect();
    else if (link.classList.contains('line')) follow(link);
    else select(link.dataset.node, {scroll: false});
  });
  view.addEventListener('pointerover', event => {
    const node = event.target.closest?.('.node');
    if (!drag) show_details(node ? node.dataset.node : selected?.dataset.node ?? null);
  });
  view.addEventListener('pointerleave', () => { if (selected) show_details(selected.dataset.node); });
  view.addEventListener('focusin', event => { const node = event.target.closest?.('.node'); if (node) show_details(node.dataset.node); });
  // Links in the text show their values in the picture.
  document.addEventListener('click', event => {
    const link = event.target.closest?.('a[href^="#"]');
    if (!link || view.contains(link)) return;
    const [kind, number] = [link.hash[1], link.hash.slice(2)], heading = link.closest('.cycle h2');
    if (heading) { event.preventDefault(); choose_cycle(heading.closest('.cycle').dataset.cycle); return; }
    if (kind === 'c') { choose_cycle(String(number - 1)); return; }
    if ((kind === 'n' || pane.contains(link)) && select(number)) { event.preventDefault(); if (!pane.contains(link)) view.scrollIntoView({block: 'nearest'}); }
  });
  document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, pre')) return;
    const inside = view.contains(event.target), key = event.key;
    if (key === '/') { event.preventDefault(); search.focus(); }
    else if (key === '+' || key === '=') zoom(.8);
    else if (key === '-') zoom(1.25);
    else if (key === '0' || key === 'f') fit();
    else if (key === 'Escape') deselect();
    else if (inside && key.startsWith('Arrow')) { event.preventDefault(); step(key); }
    else if (inside && key === ' ') { event.preventDefault(); select(event.target.dataset.node); }
  });

  const fit_height = () => { const middle = {x: box.x + box.width / 2, y: box.y + box.height / 2}, height = box.width / aspect(); show({...box, y: middle.y - height / 2, height}); };
  // A large picture begins at the worst cycle, at a readable size.
  const begin = () => {
    const is_too_small = () => box.width > view.clientWidth * 1.7, hull = svg.querySelector('.hull'), item = document.querySelector('.cycle');
    show(fitted(whole));
    if (is_too_small() && hull && item) show(frame([hull, ...members(item)]));
    if (is_too_small() && hull) show(frame([hull]));
    if (is_too_small()) show(frame([nodes[0]]));
  };
  new ResizeObserver(fit_height).observe(view);
  addEventListener('beforeprint', () => show(whole));
  begin();
})();
