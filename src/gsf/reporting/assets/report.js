"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

function element(name, options = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Tables: a click on a heading sorts, another one turns the order round.

function compare(a, b, down) {
  const known = [a, b].map((x) => !Number.isNaN(x.number));
  if (known[0] !== known[1]) return known[0] ? -1 : 1; // n/a and empty cells stay at the end
  const ascending = known[0] ? a.number - b.number : a.text.localeCompare(b.text);
  return down ? -ascending : ascending;
}

function sortBy(heading) {
  const body = heading.closest("table").tBodies[0];
  const rows = [...body.rows].map((row) => {
    const cell = row.cells[heading.cellIndex];
    return { row, text: cell.textContent.trim(), number: parseFloat(cell.dataset.value) };
  });
  const order = heading.getAttribute("aria-sort");
  const numeric = rows.some(({ number }) => !Number.isNaN(number));
  const down = order ? order === "ascending" : numeric; // best first, names from A
  rows.sort((a, b) => compare(a, b, down));
  for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...rows.map(({ row }) => row));
}

for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}

// What is wider than the screen says so.

function hint() {
  for (const box of document.querySelectorAll(".table .scroll")) {
    box.previousElementSibling.hidden = box.scrollWidth <= box.clientWidth + 1;
  }
}
addEventListener("resize", hint);
hint();

// Films: the strip is one picture; the player shows its frames one after the other.

for (const film of document.querySelectorAll(".film")) {
  const strip = film.querySelector("img");
  const player = film.querySelector(".player");
  const n = Number(film.dataset.frames);
  let at = 0;
  let timer = null;
  const show = () => {
    player.style.backgroundPosition = `${n > 1 ? (100 * at) / (n - 1) : 0}% 0`;
  };
  const stop = () => {
    clearInterval(timer);
    timer = null;
    player.setAttribute("aria-pressed", "false");
  };
  player.style.backgroundImage = `url(${strip.src})`;
  player.style.backgroundSize = `${(100 * (66 * n - 2)) / 64}% 100%`; // 64 pixels, a gap of 2
  show();
  player.addEventListener("click", () => {
    if (timer !== null) return stop();
    if (at === n - 1) at = 0;
    player.setAttribute("aria-pressed", "true");
    timer = setInterval(() => {
      at += 1;
      show();
      if (at === n - 1) stop();
    }, 180);
  });
}

// The explorer: a grid of observations; the chosen one's neighbours under every method.

const app = document.getElementById("explorer-app");

// One short address for all tiles of a game: a data URI in each would take hundreds of MB.
function spriteOf(game) {
  if (!game.address) {
    const bytes = Uint8Array.from(atob(game.sprite), (c) => c.charCodeAt(0));
    game.address = URL.createObjectURL(new Blob([bytes], { type: "image/webp" }));
  }
  return game.address;
}

function tile(game, index, name = "div", options = {}) {
  const made = element(name, options);
  const rows = Math.ceil(game.items.length / game.columns);
  const place = (i, n) => (n > 1 ? (100 * i) / (n - 1) : 0);
  made.classList.add("tile");
  made.style.backgroundImage = `url(${spriteOf(game)})`;
  made.style.backgroundSize = `${100 * game.columns}% ${100 * rows}%`;
  made.style.backgroundPosition =
    `${place(index % game.columns, game.columns)}% ${place(Math.floor(index / game.columns), rows)}%`;
  return made;
}

function describe(game, index) {
  const [level, label, value] = game.items[index];
  return [`level ${level}`, `quantile ${label + 1}/${game.bins}`, `return ${value}`];
}

function card(game, method, query) {
  const own = game.items[game.queries[query]][1];
  const near = method.neighbours[query];
  const same = near.filter((i) => game.items[i][1] === own).length;
  const row = near.map((i) => {
    const words = describe(game, i);
    const picture = tile(game, i, "div", { role: "img", "aria-label": words.join(", ") });
    if (game.items[i][1] === own) picture.classList.add("same");
    const caption = element("figcaption");
    caption.append(words[0], element("br"), words[1].replace("quantile", "q"), element("br"), words[2].replace("return", "R"));
    return element("figure", {}, picture, caption);
  });
  const dot = element("i");
  dot.style.background = method.colour;
  const name = element("b", {}, dot, method.name);
  const head = element("h4", {}, name, element("span", {}, `${same} of ${near.length} agree, ${Math.round(100 * method.agreement)} % over all`));
  return element("div", { className: "card" }, head, element("div", { className: "neighbours" }, ...row));
}

function choose(game, query) {
  const grid = app.querySelector(".grid");
  [...grid.children].forEach((t, i) => t.setAttribute("aria-pressed", String(i === query)));
  const index = game.queries[query];
  const words = describe(game, index);
  const facts = element("p", {}, element("b", {}, words[0]), element("br"), `value ${words[1]}`, element("br"), words[2]);
  app.querySelector(".chosen").replaceChildren(tile(game, index), facts);
  app.querySelector(".cards").replaceChildren(...game.methods.map((m) => card(game, m, query)));
}

function open(game) {
  const tiles = game.queries.map((index, query) => {
    const words = describe(game, index).join(", ");
    const button = tile(game, index, "button", { type: "button", title: words, "aria-label": words });
    button.addEventListener("click", () => choose(game, query));
    return button;
  });
  app.querySelector(".grid").replaceChildren(...tiles);
  app.querySelector(".about").textContent = game.about;
  choose(game, 0);
}

if (app) {
  const games = data.explorer;
  const select = element("select", { "aria-label": "game" });
  games.forEach((game, i) => select.append(element("option", { value: i }, game.game)));
  select.addEventListener("change", () => open(games[Number(select.value)]));
  const bar = element("div", { className: "bar" }, ...(games.length > 1 ? [select] : []), element("span", { className: "about note" }));
  const live = { className: "chosen", "aria-live": "polite" };
  app.append(bar, element("div", { className: "grid" }), element("div", live), element("div", { className: "cards" }));
  open(games[0]);
}
