// Two coins that a visitor can toss. Nothing is sent and nothing is kept. Without this the page has the table of probabilities.
"use strict";

const form = document.getElementById("coin");
const said = document.getElementById("said");
const PEOPLE = 1000;

const heads = () => crypto.getRandomValues(new Uint8Array(1))[0] % 2 === 1;
const answer = (truth) => (heads() ? truth : heads());
const word = (yes) => (yes ? "yes" : "no");

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const truth = new FormData(form).get("truth") === "yes";
  if (heads()) {
    said.textContent = `Heads: you tell the truth, and say ${word(truth)}.`;
  } else {
    const other = heads();
    said.textContent = `Tails, then ${other ? "heads" : "tails"}: you say ${word(other)}, whatever is true.`;
  }
});

document.getElementById("crowd").addEventListener("click", () => {
  let yes = 0;
  for (let person = 0; person < PEOPLE; person += 1) yes += answer(person < 0.3 * PEOPLE);
  const share = (100 * yes) / PEOPLE;
  said.textContent = `300 of 1,000 would truly say yes. ${yes} said it: 2 × ${share.toFixed(1)}% − 50% = ${(2 * share - 50).toFixed(1)}%.`;
});

form.hidden = false;
