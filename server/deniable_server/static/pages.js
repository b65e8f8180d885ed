// What pages do beside what they say. Without this nothing is missing. Nothing is sent and nothing is kept.
"use strict";

// The list of metrics: while somebody types, rows without these words go. Both here and on the server the words are looked for in
// data-text. Pages without it leave the search to the server.
const list = document.querySelector(".groups:has([data-text])");
const form = document.querySelector("form.search");
if (list && form) {
  const said = document.createElement("span");
  said.setAttribute("role", "status");
  form.append(said);
  const rows = [...list.querySelectorAll(".metrics > li")];
  form.elements.q.addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every((word) => row.dataset.text.includes(word));
    for (const group of list.children) group.hidden = !group.querySelector("li:not([hidden])");
    const left = rows.filter((row) => !row.hidden).length;
    said.textContent = left < rows.length ? `${left} of ${rows.length} metrics` : "";
  });
}

// A metric over time: the period under the pointer, or the one that arrow keys go to, is told above the picture,
// as the picture has it, or the table below if that has all periods.
const STEPS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: -Infinity, End: Infinity };

const table = document.querySelector(".timeline .periods");
const rows = table ? [...table.tBodies[0].rows].reverse() : [];
const listed = (column) =>
  rows
    .map(({ cells }, at) => [(100 * (at + 0.5)) / rows.length, cells[0].textContent, cells[column + 1].textContent])
    .filter(([, , estimate]) => estimate)
    .map(([x, period, estimate]) => [x, `${period}: ${estimate}`]);

document.querySelectorAll(".courses .course").forEach((picture, column) => {
  const hits = [...picture.querySelectorAll(".hit")].map((hit) => [parseFloat(hit.querySelector("line").getAttribute("x1")), hit.textContent]);
  const points = hits.length || rows.length < table.dataset.of ? hits : listed(column);
  if (!points.length) return;
  const caption = picture.closest("figure").querySelector("figcaption");
  const told = document.createElement("span");
  told.className = "told";
  caption.append(told);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  line.setAttribute("y2", "100%");
  picture.append(line);
  let at = points.length - 1;

  const go = (to) => {
    at = Math.min(Math.max(to, 0), points.length - 1);
    picture.setAttribute("aria-valuenow", at + 1);
    picture.setAttribute("aria-valuetext", points[at][1]);
  };
  const show = (to) => {
    go(to);
    line.setAttribute("x1", `${points[at][0]}%`);
    line.setAttribute("x2", `${points[at][0]}%`);
    line.setAttribute("class", "at");
    told.textContent = points[at][1];
  };
  const hide = () => {
    line.removeAttribute("class");
    told.textContent = "";
  };
  const follow = (event) => {
    const box = picture.getBoundingClientRect();
    const x = (100 * (event.clientX - box.left)) / box.width;
    show(points.reduce((best, [place], i) => (Math.abs(place - x) < Math.abs(points[best][0] - x) ? i : best), 0));
  };

  const attributes = { role: "slider", tabindex: 0, "aria-valuemin": 1, "aria-valuemax": points.length };
  for (const [name, value] of Object.entries(attributes)) picture.setAttribute(name, value);
  picture.setAttribute("aria-label", `${caption.querySelector("bdi").textContent} over time`);
  go(at);
  picture.addEventListener("pointerdown", follow);
  picture.addEventListener("pointermove", follow);
  picture.addEventListener("pointerleave", hide);
  picture.addEventListener("focus", () => show(at));
  picture.addEventListener("blur", hide);
  picture.addEventListener("keydown", (event) => {
    if (!(event.key in STEPS)) return;
    event.preventDefault();
    show(at + STEPS[event.key]);
  });
});
