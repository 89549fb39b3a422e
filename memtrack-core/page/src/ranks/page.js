// Shows the rank, time and bytes of the cell at the pointer or chosen with arrow keys, for each heat map. It does not parse text
// as HTML: names are set as text, and it follows only links of the page.
(() => {
  'use strict';
  const UNITS = [['B', 0], ['KiB', 1], ['MiB', 1], ['GiB', 2], ['TiB', 2]];
  function bytes(value) {
    let unit = 0, size = value;
    // With these limits no value is rounded to 1024 of the smaller unit.
    while (unit < UNITS.length - 1 && size >= (unit === 0 ? 1024 : 1024 - (UNITS[unit][1] === 1 ? .05 : .005))) { size /= 1024; unit++; }
    return `${size.toFixed(UNITS[unit][1])} ${UNITS[unit][0]}`;
  }

  // Unpacks rows of cells; null: no data. `cells.rs` describes the format.
  async function unpacked(text, rows, columns) {
    const packed = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
    const data = new Uint8Array(await new Response(stream).arrayBuffer());
    const cells = [];
    let at = 0;
    for (let row = 0; row < rows; row++) {
      const values = [];
      for (let column = 0, before = 0; column < columns; column++) {
        let number = 0, factor = 1, byte;
        do { byte = data[at++]; number += (byte & 127) * factor; factor *= 128; } while (byte & 128);
        if (number === 0) { values.push(null); continue; }
        const difference = Math.floor((number - 1) / 2);
        before += (number - 1) % 2 ? -difference : difference;
        values.push(before);
      }
      cells.push(values);
    }
    return cells;
  }

  function prepare(figure) {
    const map = figure.querySelector('.map'), text_line = figure.querySelector('.said'), cursor = figure.querySelector('.cursor'), off = figure.querySelector('.pick-off');
    const memory = map.id.replace('-map', ''), head = JSON.parse(document.getElementById(`${memory}-cells`).textContent);
    const columns = head.columns.length, rows = head.rows.length;
    if (!rows || !columns) return;
    let cells = null, loading = null, at = null, pinned = null;
    const hint = 'Point at a cell, or move with the arrow keys, to see its rank, time and bytes here. Click or press Enter to go to the rank.';
    // The link or the row of a rank.
    const target = row => {
      const element = document.getElementById(`${memory}-r${head.rows[row][1]}`);
      return element?.querySelector('th a') ?? element;
    };
    const load = () => loading ??= unpacked(head.cells, rows * (head.folded ? 2 : 1), columns).then(found => { cells = found; update(); }, () => {});
    function update() {
      cursor.hidden = !at;
      if (!at) { text_line.textContent = hint; return; }
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
      if (value === null) text += 'no data';
      else {
        text += head.folded ? (shows_off ? 'furthest from the median: ' : 'at most ') : '';
        text += bytes(value);
        if (head.off && median !== null) {
          const by = value - median;
          text += by === 0 ? ', the median' : `, ${bytes(Math.abs(by))} ${by > 0 ? 'more' : 'less'} than the median of ${bytes(median)}`;
        }
      }
      text_line.replaceChildren(name, text);
    }
    const show = next => { at = next; update(); };
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
      const step = event.shiftKey ? 10 : 1, [row, column] = pinned;
      const next = {ArrowUp: [row - step, column], ArrowDown: [row + step, column], ArrowLeft: [row, column - step], ArrowRight: [row, column + step], Home: [row, 0], End: [row, columns - 1], PageUp: [0, column], PageDown: [rows - 1, column]}[event.key];
      if (next) { event.preventDefault(); pinned = [Math.max(0, Math.min(rows - 1, next[0])), Math.max(0, Math.min(columns - 1, next[1]))]; show(pinned); }
      else if (event.key === 'Enter') go(row);
    });
    figure.querySelectorAll('.pick').forEach(pick => pick.addEventListener('change', update));
    map.classList.add('live');
    map.tabIndex = 0;
    map.setAttribute('role', 'application');
    map.setAttribute('aria-roledescription', 'heat map');
    map.setAttribute('aria-label', `Heat map of ${rows} rows and ${columns} columns; the arrow keys move`);
    text_line.hidden = false;
    update();
  }
  document.querySelectorAll('.heat').forEach(prepare);
})();
