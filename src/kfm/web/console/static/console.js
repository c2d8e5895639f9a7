// The console's own script. Pages are whole without it: it adds what a form or a link can't do.
// Times as people want them, keys, copies, regions that follow the ledger. Nothing here decides anything.
"use strict";
(() => {
  const kept = {
    get: (name, other) => { try { return localStorage.getItem("kfm." + name) ?? other; } catch { return other; } },
    set: (name, value) => { try { localStorage.setItem("kfm." + name, value); } catch { /* private window */ } },
  };
  const all = (root, query) => [...root.querySelectorAll(query)];

  // --- times: UTC, local or relative; chosen once, the machine's form never changes ---------------------
  const ZONES = ["UTC", "local", "relative"];
  const pad = (number) => String(number).padStart(2, "0");
  const UNITS = [[86_400_000, "day"], [3_600_000, "hour"], [60_000, "minute"], [1000, "second"]];
  const relative = new Intl.RelativeTimeFormat("en", { style: "narrow", numeric: "auto" });

  function localText(at, like) {
    const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
    const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}`;
    const seconds = /:\d\d:\d\d/.test(like) ? `:${pad(at.getSeconds())}` : "";
    return /^\d\d:/.test(like) ? clock + seconds : `${day} ${clock}${seconds}`;
  }

  function relativeText(at) {
    const apart = at.getTime() - Date.now();
    const [size, word] = UNITS.find(([size]) => Math.abs(apart) >= size) ?? UNITS.at(-1);
    return relative.format(Math.trunc(apart / size), word);
  }

  function showTimes(root) {
    const zone = kept.get("zone", "UTC");
    for (const each of all(root, "time[datetime]")) {
      each.dataset.utc ??= each.textContent;
      const at = new Date(each.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      each.textContent = zone === "local" ? localText(at, each.dataset.utc)
        : zone === "relative" ? relativeText(at) : each.dataset.utc;
      each.title = `${each.dateTime} (UTC)`;
    }
    for (const each of all(root, "[data-zone]")) {
      each.textContent = zone === "local" ? Intl.DateTimeFormat().resolvedOptions().timeZone : "UTC";
    }
    for (const each of all(root, "#zone")) each.value = zone;
  }

  // --- copies: a button behind each command and id ------------------------------------------------------
  function addCopies(root) {
    for (const each of all(root, "code.command, code.id")) {
      if (each.nextElementSibling?.classList.contains("copy")) continue;
      const button = root.ownerDocument?.createElement("button") ?? document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.setAttribute("aria-label", `Copy ${each.textContent}`);
      each.after(button);
    }
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("button.copy");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });

  // --- saved views: filters under a name, in this browser; without scripts, a bookmark does the same ------
  const views = () => { try { return JSON.parse(kept.get("views:" + location.pathname, "[]")); } catch { return []; } };

  function made(name, text, more = {}) {
    const element = document.createElement(name);
    element.textContent = text;
    for (const [key, value] of Object.entries(more)) element.setAttribute(key, value);
    return element;
  }

  function showViews(root) {
    for (const place of all(root, "[data-views]")) {
      place.replaceChildren(...views().map(({ name, query }) => {
        const item = document.createElement("li");
        const here = query === location.search ? { "aria-current": "true" } : {};
        item.append(made("a", name, { href: location.pathname + query, ...here }), " ",
          made("button", "×", { type: "button", class: "copy", "data-forget": name, "aria-label": `Forget ${name}` }));
        return item;
      }));
    }
  }

  function keepViews(changed) {
    kept.set("views:" + location.pathname, JSON.stringify(changed));
    showViews(document);
  }

  document.addEventListener("submit", (event) => {
    if (!event.target.matches("[data-save-view]")) return;
    event.preventDefault();
    const name = event.target.elements.name.value.trim();
    if (!name) return;
    keepViews([...views().filter((each) => each.name !== name), { name, query: location.search }]);
    event.target.reset();
  });
  document.addEventListener("click", (event) => {
    const name = event.target.closest?.("[data-forget]")?.dataset.forget;
    if (name !== undefined) keepViews(views().filter((each) => each.name !== name));
  });

  function prepare(root) {
    all(root, "[data-scripted]").forEach((each) => { each.hidden = false; });
    addCopies(root);
    showViews(root);
    showTimes(root);
    prepareCells(root);
  }

  // --- regions that follow the ledger: focus, scroll, open details and what was typed stay ---------------
  const isChanged = (field) => field.localName === "select"
    ? [...field.options].some((each) => each.selected !== each.defaultSelected)
    : field.type === "checkbox" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue;
  const keep = {
    beforeAttributeUpdated: (name, node) =>
      !(name === "open" && (node.localName === "details" || node.localName === "dialog")),
    beforeNodeMorphed: (old) =>
      !(old.matches?.("input, textarea, select") && (old === document.activeElement || isChanged(old))),
  };
  const live = { failed: 0, at: Date.now(), timer: 0 };
  const isPaused = () => kept.get("paused", "no") === "yes";

  function showLive() {
    const place = document.getElementById("live");
    if (!place) return;
    const every = Number(place.dataset.every) * 1000;
    const age = Math.round((Date.now() - live.at) / 1000);
    const stale = !isPaused() && (live.failed >= 3 || Date.now() - live.at > 3.5 * every);
    place.dataset.state = isPaused() ? "paused" : stale ? "stale" : "live";
    const state = place.querySelector("[role=status]");
    const text = isPaused() ? "paused" : stale ? `stale: no answer for ${age} s` : "live";
    if (state.textContent !== text) state.textContent = text;
    place.querySelector("button").textContent = isPaused() ? "Resume" : "Pause";
  }

  async function follow() {
    const place = document.getElementById("live");
    if (!place || isPaused() || document.hidden || document.querySelector("dialog[open]")) return;
    try {
      const answer = await fetch(location.href, { headers: { "X-KFM-Live": "1" }, redirect: "error" });
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (isPaused()) return;
      prepare(page);
      const root = document.documentElement;
      const isAtEnd = scrollY + innerHeight >= root.scrollHeight - 2 && document.getElementById("tail");
      for (const id of ["main", "as-of"]) {
        const [old, fresh] = [document.getElementById(id), page.getElementById(id)];
        if (old && fresh) Idiomorph.morph(old, fresh, { morphStyle: "outerHTML", callbacks: keep });
      }
      htmx.process(document.getElementById("main"));
      if (isAtEnd) scrollTo({ top: root.scrollHeight, behavior: "instant" });
      live.failed = 0;
      live.at = Date.now();
    } catch {
      live.failed += 1;
    }
    showLive();
  }

  function startLive() {
    const place = document.getElementById("live");
    if (!place) return;
    place.querySelector("button").addEventListener("click", () => {
      kept.set("paused", isPaused() ? "no" : "yes");
      live.at = Date.now();
      showLive();
    });
    setInterval(follow, Number(place.dataset.every) * 1000);
    setInterval(showLive, 1000);
    document.addEventListener("visibilitychange", follow); // it has not followed while it was hidden
    showLive();
  }

  // --- keys ---------------------------------------------------------------------------------------------
  let before = "";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    if (document.querySelector("dialog[open]")) return;
    const place = before === "g" ? document.querySelector(`nav [data-key="${CSS.escape(event.key)}"]`) : null;
    before = event.key;
    if (place) place.click();
    else if (event.key === "/") document.getElementById("search")?.focus();
    else if (event.key === "?") document.getElementById("keys")?.showModal();
    else if (event.key === ".") document.querySelector("#live button")?.click();
    else return;
    event.preventDefault();
  });

  // --- dialogs: the same form that the page of an action has ---------------------------------------------
  document.addEventListener("htmx:afterSwap", (event) => {
    prepare(event.target);
    const dialog = event.target.closest("dialog");
    if (dialog && !dialog.open) dialog.showModal();
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("dialog [data-close]")) event.target.closest("dialog").close();
  });

  // --- a selection of cells: by mouse, keys or boxes; what is selected is planned together -----------------
  const picked = new Set();
  const CELLS = "[data-state][data-window], [data-state][data-instant], [data-state][data-from][data-to]";
  const gridOf = (cell) => cell.closest("svg, table, [data-grid]") ?? cell.parentElement;
  const isLink = (cell) => cell.localName === "a" || cell.querySelector("a, button, input") !== null;
  const cellAt = (event) => event.target.closest?.(CELLS);
  let press = null;

  function textsOf(cell) {
    const { source, window: starts, schedule, instant, dataset, product, from, to } = cell.dataset;
    if (starts) return starts.split(" ").map((at) => `window:${source}@${at}`);
    if (instant) return instant.split(" ").map((at) => `instant:${schedule}@${at}`);
    return [`units:${dataset}${product ? `/${product}` : ""}@${from}/${to}`];
  }

  function brushForm() {
    const found = document.getElementById("brush");
    const cells = found ? [] : all(document, CELLS);
    if (found || !cells.length) return found;
    const made = document.createElement("form");  // a page that shows cells, and has no form for them
    made.id = made.className = "brush";
    made.action = document.querySelector(".brand a").href + "plans/new";
    made.innerHTML = '<button data-brush>Plan the selected cells</button> <button type="reset">Clear</button> '
      + '<span class="aside">Drag over cells, or use the arrow keys and Space; Shift extends.</span> '
      + '<span class="unseen" role="status"></span>';
    const grid = gridOf(cells[0]);
    (grid.closest(".scroll") ?? grid).after(made);
    return made;
  }

  function pick(cell, on) {
    textsOf(cell).forEach((text) => (on ? picked.add(text) : picked.delete(text)));
  }

  const isPicked = (cell) => textsOf(cell).every((text) => picked.has(text));

  function showPicked() {
    const form = brushForm();
    if (!form) return;
    for (const cell of all(document, CELLS)) {
      cell.classList.toggle("picked", isPicked(cell));
      if (cell.getAttribute("role") === "checkbox") cell.setAttribute("aria-checked", String(isPicked(cell)));
    }
    for (const box of all(document, 'input[name="cell"]')) {
      box.checked = box.value.split(",").every((text) => picked.has(text));
    }
    const button = form.querySelector("[data-brush]");
    button.dataset.plain ??= button.textContent;
    button.textContent = picked.size ? `Plan these ${picked.size}` : button.dataset.plain;
    form.querySelector("[role=status]").textContent = picked.size ? `${picked.size} selected` : "";
  }

  function prepareCells(root) {
    for (const cell of all(root, CELLS)) {
      if (isLink(cell)) continue;
      const grid = gridOf(cell);
      if (grid.getAttribute("role") === "img") grid.setAttribute("role", "group");
      cell.setAttribute("role", "checkbox");
      cell.setAttribute("aria-checked", String(isPicked(cell)));
      const title = cell.querySelector("title")?.textContent || cell.title || cell.textContent.trim();
      cell.setAttribute("aria-label", title);
      const first = grid.querySelector("[tabindex='0']");
      cell.setAttribute("tabindex", first && first !== cell ? "-1" : "0");
    }
  }

  const middle = (cell) => {
    const box = cell.getBoundingClientRect();
    return { x: box.left + box.width / 2, y: box.top + box.height / 2 };
  };

  function neighbour(cell, key) {
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
    const here = middle(cell);
    const far = (other) => {
      const at = middle(other);
      const [ahead, aside] = dx ? [(at.x - here.x) * dx, at.y - here.y] : [(at.y - here.y) * dy, at.x - here.x];
      return ahead > 1 ? ahead + 10 * Math.abs(aside) : Infinity;
    };
    const others = all(gridOf(cell), CELLS).filter((other) => far(other) < Infinity);
    return others.sort((one, other) => far(one) - far(other))[0];
  }

  document.addEventListener("pointerdown", (event) => {
    const cell = cellAt(event);
    if (!cell || event.button !== 0 || event.pointerType === "touch") return;
    press = { cell, at: { x: event.clientX, y: event.clientY }, on: !isPicked(cell), before: [...picked], moved: false };
    if (!isLink(cell) || event.shiftKey) event.preventDefault();
  });
  document.addEventListener("pointermove", (event) => {
    if (!press) return;
    const over = cellAt(event);
    if (!press.moved && (!over || over === press.cell)) return;
    press.moved = true;
    const [from, to] = [press.at, { x: event.clientX, y: event.clientY }];
    const within = (at, a, b, half) => at >= Math.min(a, b) - half && at <= Math.max(a, b) + half;
    picked.clear();
    press.before.forEach((text) => picked.add(text));
    for (const cell of all(gridOf(press.cell), CELLS)) {
      const at = middle(cell);
      const box = cell.getBoundingClientRect();
      if (within(at.x, from.x, to.x, box.width / 2) && within(at.y, from.y, to.y, box.height / 2)) pick(cell, press.on);
    }
    showPicked();
  });
  document.addEventListener("pointerup", () => { if (press) setTimeout(() => { press = null; }); });
  document.addEventListener("pointercancel", () => { press = null; });
  document.addEventListener("click", (event) => {
    const cell = cellAt(event);
    if (!cell || (isLink(cell) && !event.shiftKey && !press?.moved)) return;
    event.preventDefault();
    if (press?.moved) return;
    pick(cell, !isPicked(cell));
    showPicked();
  });
  document.addEventListener("keydown", (event) => {
    const cell = cellAt(event);
    if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " ") {
      pick(cell, !isPicked(cell));
    } else if (event.key.startsWith("Arrow")) {
      const next = neighbour(cell, event.key);
      if (next) {
        if (event.shiftKey) [cell, next].forEach((each) => pick(each, true));
        if (!isLink(cell)) cell.setAttribute("tabindex", "-1");
        if (!isLink(next)) next.setAttribute("tabindex", "0");
        (isLink(next) ? next.querySelector("a, button") ?? next : next).focus();
      }
    } else if (event.key === "Escape" && picked.size) {
      picked.clear();
    } else {
      return;
    }
    event.preventDefault();
    showPicked();
  });
  document.addEventListener("change", (event) => {
    if (event.target.name !== "cell") return;
    event.target.value.split(",").forEach((text) => (event.target.checked ? picked.add(text) : picked.delete(text)));
    showPicked();
  });
  document.addEventListener("reset", (event) => {
    if (event.target.id !== "brush") return;
    picked.clear();
    setTimeout(showPicked);
  });
  document.addEventListener("submit", (event) => {
    if (event.target.id !== "brush") return;
    event.preventDefault();  // all of them in one field: also those without a box on this page
    const wanted = new URLSearchParams(picked.size ? { cells: [...picked].sort().join(",") } : {});
    location.assign(`${event.target.action}?${wanted}`);
  });

  prepare(document);
  for (const each of all(document, ".scroll")) { // what failed is seen first, also in a picture that is too wide
    const bad = each.querySelector(".box.bad")?.getBoundingClientRect();
    if (bad && bad.right > each.getBoundingClientRect().right) each.scrollLeft = bad.left - each.getBoundingClientRect().left - 16;
  }
  brushForm();
  showPicked();
  document.getElementById("zone")?.addEventListener("change", (event) => {
    kept.set("zone", ZONES.includes(event.target.value) ? event.target.value : "UTC");
    showTimes(document);
  });
  startLive();
})();
