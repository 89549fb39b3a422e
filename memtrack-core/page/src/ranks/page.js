// Says of each heat map what the cell under the pointer, or at the arrow keys, is. It makes no elements from text: names are only ever
// set as text, and the links that it follows are the page's own.
(() => {
  'use strict';
  const UNITS = [['B', 0], ['KiB', 1], ['MiB', 1], ['GiB', 2], ['TiB', 2]];
  function bytes(value) {
    let unit = 0, size = value;
    // The limits leave out what would be 1024 of the smaller unit.
    while (unit < UNITS.length - 1 && size >= (unit === 0 ? 1024 : 1024 - (UNITS[unit][1] === 1 ? .05 : .005))) { size /= 1024; unit++; }
    return `${size.toFixed(UNITS[unit][1])} ${UNITS[unit][0]}`;
  }

  // Rows of cells: null where nothing is known. What is packed is described where it is written.
  async function unpacked(text, rows, columns) {
    const packed = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
    const data = new Uint8Array(await new Response(stream).arrayBuffer());
    const cells = [];
    let at = 0;
    for (let row = 0; row < rows; row++) {
      const own = [];
      for (let column = 0, before = 0; column < columns; column++) {
        let number = 0, factor = 1, byte;
        do { byte = data[at++]; number += (byte & 127) * factor; factor *= 128; } while (byte & 128);
        if (number === 0) { own.push(null); continue; }
        const by = Math.floor((number - 1) / 2);
        before += (number - 1) % 2 ? -by : by;
        own.push(before);
      }
      cells.push(own);
    }
    return cells;
  }

  function prepare(figure) {
    const map = figure.querySelector('.map'), said = figure.querySelector('.said'), cursor = figure.querySelector('.cursor'), off = figure.querySelector('.pick-off');
    const memory = map.id.replace('-map', ''), head = JSON.parse(document.getElementById(`${memory}-cells`).textContent);
    const columns = head.columns.length, rows = head.rows.length;
    if (!rows || !columns) return;
    let cells = null, loading = null, at = null, pinned = null;
    const hint = 'Point at a cell, or move with the arrow keys: here is then which rank it is, when, and how much. A click or Enter leads to the rank.';
    // The link or the row of a rank.
    const target = row => {
      const own = document.getElementById(`${memory}-r${head.rows[row][1]}`);
      return own?.querySelector('th a') ?? own;
    };
    const load = () => loading ??= unpacked(head.cells, rows * (head.folded ? 2 : 1), columns).then(found => { cells = found; tell(); }, () => {});
    function tell() {
      cursor.hidden = !at;
      if (!at) { said.textContent = hint; return; }
      const [row, column] = at;
      cursor.style.left = `${100 * column / columns}%`;
      cursor.style.width = `${100 / columns}%`;
      cursor.style.top = `${100 * row / rows}%`;
      cursor.style.height = `${100 / rows}%`;
      if (!cells) { load(); return; }
      const name = document.createElement('b'), median = head.medians[column], shows_off = off?.checked;
      name.textContent = head.rows[row][0];
      const value = cells[head.folded && shows_off ? rows + row : row][column];
      let text = `, ${head.columns[column]}: `;
      if (value === null) text += 'nothing known';
      else {
        text += head.folded ? (shows_off ? 'furthest off ' : 'at most ') : '';
        text += bytes(value);
        if (head.off && median !== null) {
          const by = value - median;
          text += by === 0 ? ', the median' : `, ${bytes(Math.abs(by))} ${by > 0 ? 'more' : 'less'} than the median of ${bytes(median)}`;
        }
      }
      said.replaceChildren(name, text);
    }
    const show = next => { at = next; tell(); };
    const cell = event => {
      const box = map.getBoundingClientRect(), limit = (part, count) => Math.max(0, Math.min(count - 1, Math.floor(part * count)));
      return [limit((event.clientY - box.top - 1) / (box.height - 2), rows), limit((event.clientX - box.left - 1) / (box.width - 2), columns)];
    };
    function go(row) {
      const found = target(row);
      if (found instanceof HTMLAnchorElement) found.click();
      else if (found) location.hash = found.id;
    }
    map.addEventListener('pointerenter', load);
    map.addEventListener('pointermove', event => show(cell(event)));
    map.addEventListener('pointerleave', () => show(pinned));
    map.addEventListener('click', event => go(cell(event)[0]));
    map.addEventListener('focus', () => { if (!pinned) { pinned = at ?? [0, 0]; show(pinned); } });
    map.addEventListener('blur', () => { pinned = null; show(null); });
    map.addEventListener('keydown', event => {
      if (event.ctrlKey || event.metaKey || event.altKey || !pinned) return;
      const far = event.shiftKey ? 10 : 1, [row, column] = pinned;
      const next = {ArrowUp: [row - far, column], ArrowDown: [row + far, column], ArrowLeft: [row, column - far], ArrowRight: [row, column + far], Home: [row, 0], End: [row, columns - 1], PageUp: [0, column], PageDown: [rows - 1, column]}[event.key];
      if (next) { event.preventDefault(); pinned = [Math.max(0, Math.min(rows - 1, next[0])), Math.max(0, Math.min(columns - 1, next[1]))]; show(pinned); }
      else if (event.key === 'Enter') go(row);
    });
    figure.querySelectorAll('.pick').forEach(pick => pick.addEventListener('change', tell));
    map.classList.add('live');
    map.tabIndex = 0;
    map.setAttribute('role', 'application');
    map.setAttribute('aria-roledescription', 'heat map');
    map.setAttribute('aria-label', `Heat map of ${rows} rows and ${columns} columns; the arrow keys move`);
    said.hidden = false;
    tell();
  }
  document.querySelectorAll('.heat').forEach(prepare);
})();
