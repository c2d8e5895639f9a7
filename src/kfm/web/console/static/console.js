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

  prepare(document);
  for (const each of all(document, ".scroll")) { // what failed is seen first, also in a picture that is too wide
    const bad = each.querySelector(".box.bad")?.getBoundingClientRect();
    if (bad && bad.right > each.getBoundingClientRect().right) each.scrollLeft = bad.left - each.getBoundingClientRect().left - 16;
  }
  document.getElementById("zone")?.addEventListener("change", (event) => {
    kept.set("zone", ZONES.includes(event.target.value) ? event.target.value : "UTC");
    showTimes(document);
  });
  startLive();
})();
