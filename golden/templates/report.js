"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const LIMITS = { inf: Infinity, "-inf": -Infinity };
const number = (value) => (typeof value === "string" ? LIMITS[value] : value);

function unpack(names, values) {
  if (!values) return null;
  return Object.fromEntries(names.map((name, i) => [name, values[i]]));
}

function unpackError(values) {
  const error = unpack(data.error_columns, values);
  if (!error) return null;
  for (const name of data.numeric) error[name] = number(error[name]);
  error.distance = Math.max(0, 1 - error.cosine);
  return error;
}

const rows = data.rows.map((values, index) => {
  const row = unpack(data.row_columns, values);
  row.index = index;
  row.acc = unpackError(row.acc);
  row.iso = unpackError(row.iso);
  row.text = [row.name, row.node, row.candidate_node, row.op_type, row.module].join("\n").toLowerCase();
  return row;
});

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// -- numbers -------------------------------------------------------------------------------------

function figure(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const plain = size >= 0.01 && size < 100000;
  return plain ? String(Number(value.toPrecision(digits))) : value.toExponential(digits - 1);
}
const cosine = (value) => (value === null || value === undefined ? "–" : value === 1 ? "1" : value.toFixed(6));
const decibel = (value) => (Number.isFinite(value) ? value.toFixed(1) : figure(value));
function times(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 && value < 0.01 ? "<0.01×" : `${figure(value, 2)}×`;
}

// -- table: only the rows in sight exist ---------------------------------------------------------

const part = (which, name) => (row) => (row[which] ? row[which][name] : null);
const COLUMNS = [
  { title: "#", width: "52px", num: true, less: true, key: (r) => r.index, show: (r) => String(r.index + 1) },
  { title: "", label: "Result", width: "58px", key: (r) => ({ false: 0, true: 1 })[r.passed] ?? 2, show: result },
  { title: "Name", key: (r) => r.name, show: (r) => element("bdi", {}, r.name), name: true },
  { title: "Op", width: "140px", less: true, key: (r) => r.op_type, show: (r) => r.op_type },
  { title: "Kind", width: "88px", less: true, key: (r) => r.kind, show: (r) => r.kind },
  { title: "Dtype", width: "78px", less: true, key: (r) => r.dtype, show: (r) => r.dtype },
  { title: "Cosine", width: "88px", num: true, less: true, key: part("acc", "cosine"), show: (r) => cosine(r.acc?.cosine) },
  { title: "Rel. L2", width: "84px", num: true, key: part("acc", "rel_l2"), show: (r) => figure(r.acc?.rel_l2) },
  { title: "Max abs", width: "90px", num: true, less: true, key: part("acc", "max_abs"), show: (r) => figure(r.acc?.max_abs) },
  { title: "Isolated", label: "Isolated relative L2", width: "84px", num: true, key: part("iso", "rel_l2"), show: (r) => figure(r.iso?.rel_l2) },
  { title: "Severity", label: "Isolated error in units of its bound", width: "90px", num: true, less: true, key: part("iso", "severity"), show: (r) => times(r.iso?.severity) },
];
const ROW_HEIGHT = 31;
const SPARE_ROWS = 12;
const view = { rows, column: 0, descending: false };
const scroll = document.getElementById("scroll");
const body = document.getElementById("body");
const head = document.getElementById("head");
const controls = ["filter", "kind", "failed"].map((id) => document.getElementById(id));

function result(row) {
  if (row.passed === null) return element("span", { class: "mark none" }, "–");
  return element("span", { class: row.passed ? "mark pass" : "mark fail" }, row.passed ? "pass" : "FAIL");
}

function classes(column) {
  return [column.num && "num", column.less && "less", column.name && "name"].filter(Boolean).join(" ");
}

function buildHead() {
  COLUMNS.forEach((column, index) => {
    const button = element("button", { type: "button", title: column.label ?? column.title }, column.title || "✓");
    button.addEventListener("click", () => sortBy(index));
    const cell = element("th", { class: classes(column), scope: "col" }, button);
    if (column.width) cell.style.width = column.width;
    head.append(cell);
  });
}

function sortBy(index) {
  // Errors are looked for from the largest down, names from the first on.
  view.descending = view.column === index ? !view.descending : Boolean(COLUMNS[index].num && index);
  view.column = index;
  refresh();
}

function compareKeys(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 2;
  if (b === null || b === undefined) return -2;
  return a < b ? -1 : 1;
}

function refresh() {
  const [filter, kind, failed] = controls;
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const { key } = COLUMNS[view.column];
  const sign = view.descending ? -1 : 1;
  view.rows = rows
    .filter((r) => (!failed.checked || r.passed === false) && (!kind.value || r.kind === kind.value))
    .filter((r) => words.every((word) => r.text.includes(word)))
    .map((row) => ({ row, value: key(row) }))
    .sort((a, b) => {
      const order = compareKeys(a.value, b.value);
      // Rows without the figure come last, whichever way.
      return (Math.abs(order) === 2 ? order : sign * order) || a.row.index - b.row.index;
    })
    .map((entry) => entry.row);
  document.getElementById("shown").textContent = `${view.rows.length} of ${rows.length}`;
  [...head.children].forEach((cell, index) => {
    if (index === view.column) cell.setAttribute("aria-sort", view.descending ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  });
  scroll.scrollTop = 0;
  draw();
}

function spacer(count) {
  const made = element("tr", { class: "spacer", "aria-hidden": "true" }, element("td"));
  made.style.height = `${count * ROW_HEIGHT}px`;
  return made;
}

function tableRow(row) {
  const made = element("tr", { class: "row", tabindex: "0", "data-index": row.index });
  for (const column of COLUMNS) {
    const cell = element("td", { class: classes(column) }, column.show(row));
    if (column.name) cell.title = row.name;
    made.append(cell);
  }
  return made;
}

function draw(all = false) {
  const first = all ? 0 : Math.max(0, Math.floor(scroll.scrollTop / ROW_HEIGHT) - SPARE_ROWS);
  // The window is never lower than the table in it, whose own height follows from its rows.
  const fit = Math.ceil(innerHeight / ROW_HEIGHT) + 2 * SPARE_ROWS;
  const last = all ? view.rows.length : Math.min(view.rows.length, first + fit);
  body.replaceChildren(
    spacer(first), ...view.rows.slice(first, last).map(tableRow), spacer(view.rows.length - last),
  );
}

function rowOf(event) {
  const found = event.target.closest("tr.row");
  return found && rows[Number(found.dataset.index)];
}

let pending = 0;
scroll.addEventListener("scroll", () => {
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(() => draw());
});
body.addEventListener("click", (event) => { const row = rowOf(event); if (row) open(row); });
body.addEventListener("keydown", (event) => {
  const row = rowOf(event);
  if (row && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); open(row); }
});
controls.forEach((control) => control.addEventListener("input", refresh));
addEventListener("resize", () => draw());
addEventListener("beforeprint", () => draw(true));
addEventListener("afterprint", () => draw());

// -- details of one layer ------------------------------------------------------------------------

const dialog = document.getElementById("details");

function facts(row) {
  const list = [
    ["kind", row.kind + (row.note ? `: ${row.note}` : "")],
    ["original node", row.node && `${row.node} (${row.op_type})`],
    ["candidate node", row.candidate_node],
    ["candidate value", row.candidate !== row.name && row.candidate],
    ["stands for", row.stands_for.length > 1 && row.stands_for.join(", ")],
    ["module", row.module],
    ["dtype", row.dtype],
    ["shape", row.shape && (row.shape.length ? row.shape.join(" × ") : "scalar")],
    ["transposed by", row.perm && row.perm.join(", ")],
  ];
  const made = element("dl", { class: "facts" });
  for (const [label, value] of list) {
    if (value) made.append(element("dt", {}, label), element("dd", { class: "mono" }, String(value)));
  }
  return made;
}

const at = (position) => (position ? ` at [${position.join(", ")}]` : "");
const mean = (text) => (data.samples > 1 ? ` (mean of ${data.samples} samples ${text})` : "");
const DETAILS = [
  ["result", (e) => e.reasons.length ? e.reasons.join("; ") : "within bounds"],
  ["limited by", (e) => e.grade],
  ["severity", (e) => times(e.severity)],
  ["cosine", (e) => cosine(e.cosine) + mean(cosine(e.mean_cosine))],
  ["relative L2", (e) => figure(e.rel_l2) + mean(figure(e.mean_rel_l2))],
  ["max abs", (e) => figure(e.max_abs) + at(e.worst_at)],
  ["max rel", (e) => figure(e.max_rel)],
  ["RMSE", (e) => figure(e.rmse)],
  ["SNR, dB", (e) => decibel(e.snr_db)],
  ["max |golden|", (e) => figure(e.golden_max)],
  ["elements that differ", (e) => `${e.mismatches} of ${e.elements}`],
  ["NaN / Inf in golden", (e) => `${e.golden_nan} / ${e.golden_inf}${at(e.golden_first)}`],
  ["NaN / Inf in candidate", (e) => `${e.candidate_nan} / ${e.candidate_inf}${at(e.candidate_first)}`],
  ["overflow / underflow", (e) => `${e.overflows} / ${e.underflows}`],
  ["mask constants", (e) => String(e.masked)],
];

function errorTable(row) {
  const errors = [["accumulated", row.acc], ["isolated", row.iso]].filter(([, error]) => error);
  if (!errors.length) return element("p", { class: "soft" }, "No figures for this value.");
  const top = element("tr", {}, element("th"), ...errors.map(([name]) => element("th", {}, name)));
  const lines = DETAILS.map(([label, show]) => {
    const cells = errors.map(([, error]) => element("td", { style: "white-space:normal" }, show(error)));
    return element("tr", {}, element("td", { class: "soft" }, label), ...cells);
  });
  return element("table", {}, element("thead", {}, top), element("tbody", {}, ...lines));
}

function open(row) {
  const close = element("button", { type: "button" }, "Close");
  close.addEventListener("click", () => dialog.close());
  const name = element("h2", { id: "details-name" }, row.name);
  dialog.replaceChildren(element("header", {}, name, close), facts(row), errorTable(row));
  if (!dialog.open) dialog.showModal();
}
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

// -- plot ----------------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";
const plot = document.getElementById("plot");
const metric = document.getElementById("metric");
const plotted = rows.filter((row) => row.acc || row.iso);
const MARGIN = { left: 52, right: 12, top: 12, bottom: 24 };

function shape(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function scales() {
  const name = metric.value;
  const width = Math.max(plot.clientWidth, 200);
  const height = plot.clientHeight || 280;
  const values = plotted.flatMap((row) => [row.acc?.[name], row.iso?.[name]])
    .filter((value) => value > 0 && Number.isFinite(value));
  const bounds = name === "rel_l2" ? plotted.map((row) => (row.acc ?? row.iso).tolerance) : [];
  const logs = [...values, ...bounds].map(Math.log10);
  const low = Math.floor(Math.max(Math.min(...logs, -3), -12)) - 1;
  const high = Math.ceil(Math.max(...logs, low + 2));
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const step = inner.width / Math.max(plotted.length, 1);
  return {
    name, width, height, low, high, step,
    x: (index) => MARGIN.left + (index + 0.5) * step,
    // Equal values lie on the lowest line, infinite ones on the highest.
    y: (value) => {
      const log = value > 0 ? Math.min(Math.max(Math.log10(value), low), high) : low;
      return MARGIN.top + inner.height * (1 - (log - low) / (high - low));
    },
  };
}

function path(scale, which, stems) {
  const base = scale.y(0);
  let text = "";
  let joined = false;
  plotted.forEach((row, index) => {
    const value = row[which]?.[scale.name];
    if (value === null || value === undefined) { joined = false; return; }
    const x = scale.x(index).toFixed(1);
    const y = scale.y(value).toFixed(1);
    text += stems ? `M${x} ${base}V${y}` : `${joined ? "L" : "M"}${x} ${y}`;
    joined = true;
  });
  return text;
}

function dots(scale, which) {
  return plotted.map((row, index) => {
    const value = row[which]?.[scale.name];
    return value > 0 ? `M${scale.x(index).toFixed(1)} ${scale.y(value).toFixed(1)}h0` : "";
  }).join("");
}

function boundPath(scale) {
  if (scale.name !== "rel_l2") return "";
  return plotted.map((row, index) => {
    const y = scale.y((row.acc ?? row.iso).tolerance).toFixed(1);
    const x = scale.x(index) - scale.step / 2;
    return `${index ? "L" : "M"}${x.toFixed(1)} ${y}H${(x + scale.step).toFixed(1)}`;
  }).join("");
}

function drawPlot() {
  const scale = scales();
  const svg = shape("svg", { viewBox: `0 0 ${scale.width} ${scale.height}`, role: "img", "aria-label": "Error by layer" });
  const every = Math.ceil((scale.high - scale.low) / 7);
  for (let power = scale.low; power <= scale.high; power += every) {
    const y = scale.y(10 ** power);
    svg.append(shape("path", { class: "grid", d: `M${MARGIN.left} ${y}H${scale.width - MARGIN.right}` }));
    const label = power === scale.low ? "equal" : `1e${power}`;
    svg.append(shape("text", { x: MARGIN.left - 8, y: y + 4, "text-anchor": "end" }, label));
  }
  const size = Math.max(2, Math.min(5, scale.step * 0.6));
  svg.append(
    shape("path", { class: "bound", d: boundPath(scale) }),
    shape("path", { class: "add", "stroke-opacity": scale.step < 3 ? 0.12 : 0.35, "stroke-width": Math.max(1, Math.min(6, scale.step * 0.5)), d: path(scale, "iso", true) }),
    shape("path", { class: "arrive", "stroke-width": 1.6, d: path(scale, "acc", false) }),
    shape("path", { class: "arrive dots", "stroke-width": size, d: dots(scale, "acc") }),
    shape("path", { class: "add dots", "stroke-width": size, d: dots(scale, "iso") }),
    shape("text", { x: scale.width - MARGIN.right, y: scale.height - 6, "text-anchor": "end" }, `${plotted.length} values, in the model's order`),
  );
  const cursor = shape("path", { class: "cursor" });
  svg.append(cursor);
  svg.addEventListener("pointermove", (event) => point(event, scale, cursor));
  svg.addEventListener("pointerleave", () => { cursor.removeAttribute("d"); tip.hidden = true; });
  svg.addEventListener("click", (event) => { const row = nearest(event, scale); if (row) open(row); });
  plot.replaceChildren(svg, tip);
}

const tip = element("div", { id: "tip", hidden: "" });

function nearest(event, scale) {
  const x = event.clientX - plot.getBoundingClientRect().left - MARGIN.left;
  return plotted[Math.max(0, Math.min(plotted.length - 1, Math.floor(x / scale.step)))];
}

function point(event, scale, cursor) {
  const row = nearest(event, scale);
  if (!row) return;
  const x = scale.x(plotted.indexOf(row));
  cursor.setAttribute("d", `M${x} ${MARGIN.top}V${scale.height - MARGIN.bottom}`);
  tip.replaceChildren(
    element("div", { class: "mono" }, row.name),
    element("div", { class: "soft" }, [row.op_type, row.dtype].filter(Boolean).join(" · ")),
    element("div", {}, `accumulated ${figure(row.acc?.[scale.name])}, isolated ${figure(row.iso?.[scale.name])}`),
  );
  tip.hidden = false;
  const right = x > scale.width / 2;
  tip.style.top = "8px";
  tip.style.left = right ? "auto" : `${x + 12}px`;
  tip.style.right = right ? `${scale.width - x + 12}px` : "auto";
}

metric.addEventListener("change", drawPlot);
new ResizeObserver(drawPlot).observe(plot);

for (const kind of new Set(rows.map((row) => row.kind))) {
  document.getElementById("kind").append(element("option", { value: kind }, kind));
}
buildHead();
refresh();
drawPlot();
