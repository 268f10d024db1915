// Colours of the picture, as plain values: an exported file has no style sheet to ask.

const PICTURES = {
  light: {
    ground: "#ffffff",
    ink: "#1b1f24",
    muted: "#5a6370",
    ring: "#c9d0d9",
    edge: "#aab3bf",
    none: "#d3d8de",
    for: "#0b5cab",
    against: "#c2520a",
    outline: "#56606d",
  },
  dark: {
    ground: "#1a1e24",
    ink: "#e8eaed",
    muted: "#a5afbb",
    ring: "#3d4652",
    edge: "#5b6572",
    none: "#48515d",
    for: "#6db3ff",
    against: "#ff9f55",
    outline: "#aeb8c4",
  },
};
const KEY = "pprgnn-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
let printing = false;

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return !printing && (chosen ? chosen === "dark" : dark.matches);
}

export const picture = () => PICTURES[isDark() ? "dark" : "light"];

const channels = (colour) => [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));

function mix(from, to, part) {
  const [one, other] = [channels(from), channels(to)];
  return `#${one
    .map((value, i) =>
      Math.round(value + (other[i] - value) * part)
        .toString(16)
        .padStart(2, "0"),
    )
    .join("")}`;
}

/** Grey is none, blue speaks for the class, orange against it; the root lets far, small shares be seen. */
export function influence(share, largest) {
  const { none, for: pro, against } = picture();
  if (!share || !largest) return none;
  return mix(none, share > 0 ? pro : against, 0.12 + 0.88 * Math.sqrt(Math.min(1, Math.abs(share) / largest)));
}

/** Follow the system's colours until the reader chooses; paper is always light. `changed` paints again. */
export function watchTheme(button, changed) {
  const show = () => {
    button.setAttribute("aria-pressed", isDark());
    changed();
  };
  const stored = localStorage.getItem(KEY);
  if (stored === "dark" || stored === "light") document.documentElement.dataset.theme = stored;
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    localStorage.setItem(KEY, theme);
    show();
  });
  dark.addEventListener("change", show);
  for (const [event, value] of [
    ["beforeprint", true],
    ["afterprint", false],
  ]) {
    addEventListener(event, () => {
      printing = value;
      changed();
    });
  }
  button.setAttribute("aria-pressed", isDark());
}
