// The dashboard works without this. With it, values are copied by a button, a page that has changed exchanges its
// changed part, and a name is checked while it is typed.
"use strict";
(() => {
  document.documentElement.classList.add("js");
  const main = document.getElementById("main");
  const said = document.getElementById("said");
  const say = (text) => { said.textContent = ""; requestAnimationFrame(() => { said.textContent = text; }); };

  // Copying.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const word = button.querySelector("span");
    const before = word.textContent;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      word.textContent = main.dataset.copied;
      say(main.dataset.copied);
    } catch {
      // Not allowed: the value is selected for the keyboard.
      const code = button.parentElement.querySelector("code");
      if (code) getSelection().selectAllChildren(code);
      say(main.dataset.copyFailed);
    }
    setTimeout(() => { word.textContent = before; }, 1500);
  });

  // A form is sent once; an open menu closes with Escape or a click elsewhere.
  document.addEventListener("submit", (event) => {
    if (event.target.dataset.sent) { event.preventDefault(); return; }
    event.target.dataset.sent = "yes";
    setTimeout(() => { delete event.target.dataset.sent; }, 8000);
  });
  const menus = () => document.querySelectorAll(".account[open], .actions details[open]");
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of menus()) { menu.open = false; menu.querySelector("summary").focus(); }
  });
  document.addEventListener("click", (event) => {
    for (const menu of menus()) if (!menu.contains(event.target)) menu.open = false;
  });

  // The identity of an element: its link target, or the form that it sends.
  const marked = (one) => [one.tagName, one.id, one.getAttribute("href"), one.closest("form")?.getAttribute("action"),
    one.closest("details")?.id, one.name, one.value, one.getAttribute("aria-label")].join("\n");

  // Replaces the part of the page with this id by the fetched one. Open details stay open, and the focus stays.
  const exchange = (text, id) => {
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById(id);
    const old = document.getElementById(id);
    if (!fresh || !old) return false;
    for (const details of old.querySelectorAll("details[id][open]")) {
      const same = fresh.querySelector(`details[id="${CSS.escape(details.id)}"]`);
      if (same) same.open = true;
    }
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const mark = focused ? marked(focused) : null;
    old.replaceWith(fresh);
    if (mark) {
      // Its row may have been removed: then nothing is focused, so that Enter does nothing else.
      const again = [...fresh.querySelectorAll("a, button, input, select, summary, [tabindex]")].find((one) => marked(one) === mark);
      if (again) again.focus({ preventScroll: true });
    }
    return true;
  };

  // Events of changes of the page.
  const live = () => document.getElementById("live");
  if (main.dataset.live && live() && window.EventSource) {
    let latest = null;
    let busy = false;
    const untouched = (select) => Math.max([...select.options].findIndex((option) => option.defaultSelected), 0);
    const touched = () => [...live().querySelectorAll("select")].some((select) => select === document.activeElement
      || select.selectedIndex !== untouched(select));
    const refresh = async () => {
      if (busy || touched() || latest === live().dataset.state) return;
      busy = true;
      try {
        const response = await fetch(location.pathname + location.search, { headers: { accept: "text/html", "x-by-itself": "yes" } });
        const before = live().querySelector(".badge")?.textContent;
        if (response.redirected || response.status === 404) { location.reload(); return; }
        if (response.ok && exchange(await response.text(), "live")) {
          const after = live().querySelector(".badge")?.textContent;
          if (after && after !== before) say(after);
        }
      } catch { /* The next event tries again. */ } finally { busy = false; }
    };
    const events = new EventSource(main.dataset.live);
    events.addEventListener("state", (event) => { latest = event.data; refresh(); });
    setInterval(() => { if (latest) refresh(); }, 3000);
    addEventListener("pagehide", () => events.close());
  }

  // Checks a name while it is typed, after a pause in typing.
  const form = document.querySelector("form[data-check]");
  if (form) {
    const input = form.querySelector("input[name=name]");
    let timer = 0;
    let asked = input.value.trim();
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(async () => {
        const name = input.value.trim();
        if (name === asked || !/^[^\s.]+(\.[^\s.]+)+$/.test(name)) return;
        asked = name;
        say(form.dataset.checking);
        const response = await fetch(`${location.pathname}?name=${encodeURIComponent(name)}`).catch(() => null);
        if (response && input.value.trim() === name) exchange(await response.text(), form.dataset.check);
      }, 900);
    });
  }
})();
