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
// as in the table below.
const STEPS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: -Infinity, End: Infinity };

const rows = [...document.querySelectorAll(".periods tbody tr")].reverse();

document.querySelectorAll(".courses .course").forEach((picture, column) => {
  const texts = rows.map(({ cells }) => cells[column + 1].textContent && `${cells[0].textContent}: ${cells[column + 1].textContent}`);
  const places = [...texts.keys()].filter((row) => texts[row]);
  const caption = picture.closest("figure").querySelector("figcaption");
  const told = document.createElement("span");
  told.className = "told";
  caption.append(told);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  line.setAttribute("y2", "100%");
  picture.append(line);
  let at = places.length - 1;

  const go = (to) => {
    at = Math.min(Math.max(to, 0), places.length - 1);
    picture.setAttribute("aria-valuenow", at + 1);
    picture.setAttribute("aria-valuetext", texts[places[at]]);
  };
  const show = (to) => {
    go(to);
    const x = `${(100 * (places[at] + 0.5)) / rows.length}%`;
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    line.setAttribute("class", "at");
    told.textContent = texts[places[at]];
  };
  const hide = () => {
    line.removeAttribute("class");
    told.textContent = "";
  };
  const follow = (event) => {
    const box = picture.getBoundingClientRect();
    const row = (rows.length * (event.clientX - box.left)) / box.width - 0.5;
    show(places.reduce((best, place, i) => (Math.abs(place - row) < Math.abs(places[best] - row) ? i : best), 0));
  };

  const attributes = { role: "slider", tabindex: 0, "aria-valuemin": 1, "aria-valuemax": places.length };
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
