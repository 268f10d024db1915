(() => {
  "use strict";
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const keep = (value) => { try { localStorage.setItem("pprgnn-theme", value); } catch { /* a page of a file may not */ } };
  const kept = () => { try { return localStorage.getItem("pprgnn-theme"); } catch { return null; } };
  const shown = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const label = () => { button.textContent = shown() === "dark" ? "Light" : "Dark"; };
  if (["light", "dark"].includes(kept())) root.dataset.theme = kept();
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = shown() === "dark" ? "light" : "dark";
    keep(root.dataset.theme);
    label();
  });
  dark.addEventListener("change", label);
  label();

  // What is folded on screen is open on paper, if it says so.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details[data-print]:not([open])")];
    opened.forEach((each) => { each.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((each) => { each.open = false; }));

  // The entry of the section that is being read.
  const entries = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
  const watcher = new IntersectionObserver((seen) => {
    for (const each of seen) {
      if (each.isIntersecting) {
        entries.forEach((a) => a.removeAttribute("aria-current"));
        entries.get(each.target.id)?.setAttribute("aria-current", "true");
      }
    }
  }, { rootMargin: "-10% 0px -75% 0px" });
  entries.forEach((_, id) => { const section = document.getElementById(id); if (section) watcher.observe(section); });
})();
