// What an agent reads of a MiniWoB page, and the parts of its actions that no mouse or keyboard does.
// The numbers of elements are those of the package's core.getDOMInfo (data-wob_ref), so both can be used side by side.
window.rlfactory = (() => {
  const IGNORED = new Set(["reward-display", "sync-task-cover", "click-canvas", "attention-canvas", "query"]);
  const CONTROLS = new Set(["button", "input", "textarea", "select", "a"]);
  const STYLING = /^ui-(corner|widget|helper|front$|state-default|accordion|sortable|menu-item-w|tabs|button|icon$|dialog-b)/;
  const MOST_TEXT = 1200, MOST_LINES = 400;
  const kept = [];  // loaded pictures, which stay in memory
  let elements = new Map();  // by number, those of the last description

  const tidy = (text) => text.replace(/\s+/g, " ").trim();
  const quoted = (text) => JSON.stringify(text.length > MOST_TEXT ? text.slice(0, MOST_TEXT) + "…" : text);

  function number(element) {
    const episode = "e" + WOB_EPISODE_ID, data = element.dataset;
    if (data.wob_ref === undefined || data.wob_eps !== episode || elements.has(+data.wob_ref)) {
      data.wob_ref = core.nextRefCode++;  // also for the copy of an element, which has the original's number
      data.wob_eps = episode;
    }
    elements.set(+data.wob_ref, element);
  }

  function isShown(element, style, box) {
    const isSeen = element instanceof SVGElement ? box.width + box.height > 4 : Math.min(box.width, box.height) > 2;
    return isSeen && style.visibility !== "hidden";
  }

  function colour(element, style) {
    if (element instanceof SVGElement) return element.getAttribute("fill") || element.style.fill || "";
    const own = element.style.backgroundColor || style.backgroundColor;
    return /^rgba\(.*, 0\)$/.test(own) ? "" : own;
  }

  function place(box) {
    return `at ${Math.round(box.left)},${Math.round(box.top)} size ${Math.round(box.width)}x${Math.round(box.height)}`;
  }

  // The state of an element that a user sees: value, marks, scrolling.
  function state(element, tag, style) {
    const parts = [];
    if (tag === "input" || tag === "textarea") {
      if (element.type === "checkbox" || element.type === "radio") parts.push(element.checked ? "checked" : "unchecked");
      else parts.push(`value=${quoted(element.value)}`);
      if (element.placeholder && !element.value) parts.push(`placeholder=${quoted(element.placeholder)}`);
    }
    if (tag === "select") {
      const mark = (option) => quoted(tidy(option.text)) + (option.selected ? " (selected)" : "");
      parts.push(`options=[${[...element.options].map(mark).join(", ")}]`);
    }
    if (tag === "img") parts.push(quoted(element.alt || element.src.split("/").pop()));
    if (element.disabled) parts.push("disabled");
    if (document.activeElement === element) parts.push("focused");
    if (element.scrollHeight > element.clientHeight + 4 && (tag === "textarea" || /auto|scroll/.test(style.overflowY)))
      parts.push(`scrolled ${Math.round(element.scrollTop)} of ${element.scrollHeight - element.clientHeight}`);
    return parts;
  }

  function headline(element, tag, style, box, text, isEmpty) {
    const names = [...element.classList].filter((name) => !STYLING.test(name));
    const classes = names.map((name) => "." + name).join("");
    const kind = tag === "input" ? `input ${element.type}` : tag;
    const parts = [`[${element.dataset.wob_ref}]`, kind + (element.id ? "#" + element.id : "") + classes];
    parts.push(...state(element, tag, style));
    if (text) parts.push(quoted(text));
    if (element instanceof SVGElement || (isEmpty && !CONTROLS.has(tag))) parts.push(colour(element, style), place(box));
    else if (tag === "textarea") parts.push(place(box));
    return parts.filter((part) => part).join(" ");
  }

  // The lines of an element and all in it. A wrapper without text that holds one thing has no line of its own.
  function lines(element, depth) {
    const tag = element.tagName.toLowerCase();
    if (tag === "style" || tag === "script" || tag === "br" || IGNORED.has(element.id)) return [];
    const style = getComputedStyle(element), box = element.getBoundingClientRect(), indent = " ".repeat(depth);
    const isShownHere = isShown(element, style, box);
    if (isShownHere) number(element);
    if (isShownHere && CONTROLS.has(tag)) {
      const text = tag === "button" || tag === "a" ? tidy(element.textContent) : "";
      return [indent + headline(element, tag, style, box, text, false)];
    }
    const texts = [], inner = [];
    for (const child of element.childNodes) {
      if (child instanceof Element) inner.push(...lines(child, depth + 1));
      else if (child instanceof Text && isShownHere && tidy(child.data)) {
        texts.push(tidy(child.data));
        inner.push(`${indent} ${quoted(tidy(child.data))}`);
      }
    }
    const isWrapper = element === document.body || element.id === "wrap" || element.id === "area";
    const isBare = !element.id && !element.classList.length;
    if (!isShownHere || (!texts.length && isWrapper) || (!texts.length && inner.length && tag !== "svg" && isBare))
      return inner.map((line) => line.slice(1));
    if (!texts.length && inner.length === 1 && tag !== "svg") return [inner[0].slice(1)];
    const only = texts.length === 1 && (tag === "label" || inner[0].endsWith(quoted(texts[0]))) ? texts[0] : "";
    const rest = only ? inner.filter((line) => line.trim() !== quoted(only)) : inner;
    return [indent + headline(element, tag, style, box, only, !inner.length), ...rest];
  }

  // The pictures that styles name, such as those of :hover: while one is loaded, in real time, its element has no size.
  function stylePictures() {
    const inline = [...document.querySelectorAll("style")].map((style) => style.textContent).join("\n");
    return [...inline.matchAll(/url\(["']?([^"')]+)/g)].map((match) => match[1]);
  }

  function picture(url) {
    const image = new Image();
    kept.push(image);
    return new Promise((end) => ((image.onload = image.onerror = end), (image.src = url)));
  }

  return {
    // Begin the episode of a seed. A link or a form that leads to another document does nothing from now on.
    async begin(seed, mode) {
      await Promise.all(stylePictures().map((url) => picture(url)));
      window.open = () => null;
      for (const kind of ["click", "submit"])  // a link or form to a new window would open it; in this one it does nothing
        addEventListener(kind, (event) => event.target.closest?.("[target]")?.removeAttribute("target"), true);
      navigation.addEventListener("navigate", (event) => event.cancelable && !event.hashChange && event.preventDefault());
      core.setDataMode(mode);
      Math.seedrandom(seed);
      core.startEpisodeReal();
    },
    // What is on the page now, and how the episode stands. Pictures are loaded in real time, so it waits for them.
    async look() {
      const loading = [...document.images].filter((image) => !image.complete);
      await Promise.all(loading.map((image) => new Promise((end) => (image.onload = image.onerror = end))));
      elements = new Map();
      const found = lines(document.body, 0);
      const rest = found.length > MOST_LINES ? [`… ${found.length - MOST_LINES} more lines`] : [];
      const said = core.getUtterance(), task = said.utterance || said;  // some pages name its fields, too
      const icons = [...document.querySelectorAll("#query *")].filter((part) => !tidy(part.textContent));
      const shown = icons.map((part) => part.className.match(/ui-icon-\S+/)?.[0] || colour(part, getComputedStyle(part)));
      return {
        task: shown.length ? `${task} (${shown.join(", ")})` : task, text: [...found.slice(0, MOST_LINES), ...rest].join("\n"),
        done: WOB_DONE_GLOBAL, raw: WOB_RAW_REWARD_GLOBAL,
      };
    },
    // A point of an element, scrolled into view: so far from its left and upper edges, or its middle, which for a text in
    // several lines is that of the longest; null if it is not on the page any more.
    point(number, x, y) {
      const element = elements.get(number);
      if (!element || !element.isConnected) return null;
      element.scrollIntoView({ block: "nearest", inline: "nearest" });
      const box = element.getBoundingClientRect();
      const [part] = [...element.getClientRects()].sort((one, other) => other.width - one.width);
      if (!part) return null;
      return [x === null ? part.left + part.width / 2 : box.left + x, y === null ? part.top + part.height / 2 : box.top + y];
    },
    // Whether typing replaces the text of the element that has the focus ("keys"), has set its value ("set"), or why not.
    fill(number, text) {
      const element = elements.get(number), active = document.activeElement;
      if (element.disabled || element.readOnly) return "it takes no text now";
      if (/^(date|time|month|week|datetime-local|color|range)$/.test(element.type)) {
        element.value = text;
        if (element.value !== text) return `a field of type ${element.type} does not take this value`;
        for (const kind of ["input", "change"]) element.dispatchEvent(new Event(kind, { bubbles: true }));
        return "set";
      }
      if (active instanceof HTMLInputElement || active instanceof HTMLTextAreaElement) return active.select(), "keys";
      return active.isContentEditable ? "keys" : "it takes no text";
    },
    // Choose the options of a <select> by their texts; returns why not, or "".
    choose(number, wanted) {
      const element = elements.get(number);
      if (!(element instanceof HTMLSelectElement)) return "it is no list of options (select); click it";
      const options = [...element.options], texts = options.map((option) => tidy(option.text));
      const unknown = wanted.filter((text) => !texts.includes(text));
      if (unknown.length) return `it has no option ${quoted(unknown[0])}`;
      if (wanted.length > 1 && !element.multiple) return "it takes one option";
      if (element.multiple) options.forEach((option, index) => (option.selected = wanted.includes(texts[index])));
      else element.selectedIndex = texts.indexOf(wanted[0]);
      for (const kind of ["input", "change"]) element.dispatchEvent(new Event(kind, { bubbles: true }));
      return "";
    },
    // Scroll an element, or the nearest around it that scrolls, by so many pixels.
    scroll(number, pixels) {
      for (let each = elements.get(number); each; each = each.parentElement) {
        const before = each.scrollTop;
        each.scrollTop += pixels;
        if (each.scrollTop !== before) return;
      }
    },
  };
})();
