// The page's side of feedback: what is hit, what has focus, what changed.
// Runs in every document before its own scripts, keeps natives that a page may
// replace, and touches nothing that the page can see but one hidden name.
(() => {
  if (window.__probe) return;
  const frame = window.requestAnimationFrame.bind(window);
  const after_ms = window.setTimeout.bind(window);
  const now = performance.now.bind(performance);
  const QUIET_TAGS = new Set(['SCRIPT', 'STYLE', 'LINK', 'META', 'HEAD', 'TITLE']);
  const NOISE = 3; // that many of them make an element a clock, a banner, an ad
  const SAMPLES = 32;
  const ACTORS = 'a[href],button,input,select,textarea,label,summary,option,' +
    '[onclick],[contenteditable=""],[contenteditable=true],' +
    ['button', 'link', 'checkbox', 'radio', 'tab', 'menuitem', 'option', 'switch',
      'textbox', 'searchbox', 'combobox', 'treeitem', 'slider', 'spinbutton']
      .map((role) => `[role=${role}]`).join(',');
  const NATIVE = new Set(['date', 'time', 'datetime-local', 'month', 'week', 'color',
    'range', 'select-one']);
  const FORMATS = {date: 'YYYY-MM-DD', time: 'HH:MM', month: 'YYYY-MM',
    week: 'YYYY-Www', 'datetime-local': 'YYYY-MM-DDTHH:MM', color: '#rrggbb'};

  // ---- what changes -----------------------------------------------------------
  const none = () => ({changes: 0, styles: 0, added: []});
  let isActing = false, lastChange = 0, isLeaving = false, hit = null, scrolls = [];
  let done = none(), late = none(); // of the action, and since it was looked at
  const ticks = new WeakMap(); // element -> changes that no action asked for

  const note = (records) => {
    const ticked = new Set();
    for (const record of records) {
      const element = record.target.nodeType === 1 ? record.target
        : record.target.parentElement;
      if (element && QUIET_TAGS.has(element.tagName)) continue;
      if (element && ticks.get(element) >= NOISE) continue;
      if (!isActing && element && !ticked.has(element)) {
        ticks.set(element, (ticks.get(element) || 0) + 1);
        ticked.add(element);
      }
      const nodes = [...record.addedNodes].filter((n) => !QUIET_TAGS.has(n.tagName));
      const gone = [...record.removedNodes].filter((n) => !QUIET_TAGS.has(n.tagName));
      if (record.type === 'childList' && !nodes.length && !gone.length) continue;
      lastChange = now();
      const into = isActing ? done : late;
      if (record.attributeName === 'class' || record.attributeName === 'style') {
        into.styles++;
      } else into.changes++;
      into.added.push(...nodes.slice(0, SAMPLES - into.added.length));
    }
  };
  const observer = new MutationObserver(note);
  observer.observe(document, {childList: true, subtree: true, characterData: true,
    attributes: true, attributeFilter: ['class', 'style', 'hidden', 'disabled', 'open',
      'src', 'aria-expanded', 'aria-selected', 'aria-checked', 'aria-pressed',
      'aria-hidden', 'aria-invalid']});
  document.addEventListener('scroll', () => { lastChange = now(); },
    {capture: true, passive: true});
  if (window.navigation) {
    window.navigation.addEventListener('navigate', (event) => {
      isLeaving = !event.destination.sameDocument && event.downloadRequest === null;
    });
  }

  // ---- how things are called --------------------------------------------------
  const cut = (text, limit = 30) => {
    const flat = String(text ?? '').replace(/\s+/g, ' ').trim();
    return flat.length > limit ? flat.slice(0, limit - 1) + '…' : flat;
  };
  const kindOf = (e) => {
    const role = e.getAttribute('role');
    if (role && /^[a-z]+$/.test(role)) return role;
    const tag = e.tagName.toLowerCase();
    if (tag === 'input') {
      if (['submit', 'reset', 'button', 'image'].includes(e.type)) return 'button';
      return ['checkbox', 'radio'].includes(e.type) ? e.type : `${e.type} field`;
    }
    return {a: 'link', textarea: 'text area', select: 'drop-down list', img: 'image',
      li: 'list item', html: 'page', body: 'page'}[tag] || tag;
  };
  const ownText = (e) => [...e.childNodes].filter((n) => n.nodeType === 3)
    .map((n) => n.data).join(' ');
  const nameOf = (e) => {
    if (e === document.body || e === document.documentElement) return '';
    const label = e.getAttribute('aria-label') || (e.labels && e.labels.length &&
      e.labels[0].innerText);
    if (label) return cut(label);
    if (e.tagName === 'INPUT') {
      const isButton = ['submit', 'reset', 'button'].includes(e.type);
      return cut((isButton && e.value) || e.placeholder || e.alt || e.name || e.id);
    }
    if (['SELECT', 'TEXTAREA'].includes(e.tagName)) {
      return cut(e.placeholder || e.name || e.id);
    }
    const text = e.matches(ACTORS) ? e.innerText : ownText(e);
    return cut(text) || cut(e.alt || e.title || e.id);
  };
  const named = (e) => {
    const name = nameOf(e);
    return name ? `${kindOf(e)} '${name}'` : kindOf(e);
  };
  const actorOf = (e) => e.closest(ACTORS) || e;
  const isDisabled = (e) => e.matches(':disabled') ||
    Boolean(e.closest('[aria-disabled=true],[inert]'));
  const stateOf = (e) => {
    const state = {};
    for (const key of ['checked', 'open']) if (e[key] === true) state[key] = 'true';
    for (const key of ['expanded', 'selected', 'checked', 'pressed']) {
      const value = e.getAttribute('aria-' + key);
      if (value !== null) state[key] = cut(value);
    }
    return state;
  };

  // ---- where things are -------------------------------------------------------
  const elementAt = (x, y) => {
    let element = document.elementFromPoint(x, y);
    for (let depth = 0; element && depth < 8; depth++) {
      let inner = null;
      if (element.shadowRoot) inner = element.shadowRoot.elementFromPoint(x, y);
      else if (element.tagName === 'IFRAME' && element.contentDocument) {
        const box = element.getBoundingClientRect();
        x -= box.left + element.clientLeft;
        y -= box.top + element.clientTop;
        inner = element.contentDocument.elementFromPoint(x, y);
      }
      if (!inner || inner === element) break;
      element = inner;
    }
    return element;
  };
  const coveredAt = (x, y, top) => {
    if (top.closest(ACTORS)) return '';
    for (const lower of document.elementsFromPoint(x, y)) {
      if (lower.matches(ACTORS) && !lower.contains(top) && !top.contains(lower)) {
        return named(lower);
      }
    }
    return '';
  };
  const optionsOf = (e) => [...e.options].slice(0, 10).map((o) => cut(o.text, 20));
  const describeHit = (x, y) => {
    const element = elementAt(x, y);
    if (!element) return null;
    hit = actorOf(element);
    const isList = hit.tagName === 'SELECT' && !hit.multiple && hit.size <= 1;
    return {name: named(hit), disabled: isDisabled(hit), state: stateOf(hit),
      covers: coveredAt(x, y, element), foreign: hit.tagName === 'IFRAME',
      options: isList ? optionsOf(hit) : null,
      chosen: isList && hit.selectedOptions.length ? cut(hit.selectedOptions[0].text) : ''};
  };
  const focused = () => {
    let element = document.activeElement;
    for (let depth = 0; element && depth < 8; depth++) {
      const inner = element.shadowRoot ? element.shadowRoot.activeElement
        : element.tagName === 'IFRAME' && element.contentDocument
          ? element.contentDocument.activeElement : null;
      if (!inner) break;
      element = inner;
    }
    return element;
  };
  const isText = (e) => e.isContentEditable || e.tagName === 'TEXTAREA' ||
    (e.tagName === 'INPUT' && !['checkbox', 'radio', 'submit', 'reset', 'button', 'image',
      'file', 'hidden'].includes(e.type)) || e.tagName === 'SELECT';
  const valueOf = (e) => {
    if (e.tagName === 'SELECT') return e.selectedOptions.length ? e.selectedOptions[0].text : '';
    if (e.isContentEditable) return e.innerText;
    return typeof e.value === 'string' && isText(e) ? e.value : '';
  };
  const describeFocus = () => {
    const element = focused();
    if (!element || element === element.ownerDocument.body ||
      element === element.ownerDocument.documentElement) return null;
    const isSecret = element.type === 'password';
    return {name: named(element), value: isSecret ? '' : valueOf(element).slice(0, 20000),
      length: valueOf(element).length, secret: isSecret, text: isText(element),
      fixed: Boolean(element.readOnly) || isDisabled(element),
      native: NATIVE.has(element.type),
      foreign: element.tagName === 'IFRAME', lines: element.tagName === 'TEXTAREA' ||
        element.isContentEditable};
  };
  const scrollersAt = (x, y) => {
    const chain = [];
    for (let e = elementAt(x, y); e; e = e.parentElement) {
      const isRoot = e === document.documentElement || e === document.body;
      const style = getComputedStyle(e);
      const scrollable = (axis) => isRoot || /auto|scroll|overlay/.test(style[axis]);
      if ((e.scrollHeight > e.clientHeight && scrollable('overflowY')) ||
        (e.scrollWidth > e.clientWidth && scrollable('overflowX'))) {
        if (!isRoot) chain.push(e);
      }
    }
    if (document.scrollingElement) chain.push(document.scrollingElement);
    return chain;
  };
  const position = (e) => ({name: e === document.scrollingElement ? 'the page' : named(e),
    x: Math.round(e.scrollLeft), y: Math.round(e.scrollTop),
    widest: Math.round(e.scrollWidth - e.clientWidth),
    deepest: Math.round(e.scrollHeight - e.clientHeight)});

  // ---- what stays after an action ---------------------------------------------
  const isSeen = (e) => {
    if (!e.isConnected || !e.checkVisibility({visibilityProperty: true})) return false;
    const box = e.getBoundingClientRect();
    return box.width > 0 && box.height > 0 && box.bottom > 0 && box.right > 0 &&
      box.top < innerHeight && box.left < innerWidth;
  };
  const appeared = () => {
    const seen = [];
    for (const node of done.added) {
      const element = node.nodeType === 1 ? node : node.parentElement;
      if (element && !seen.includes(element) && isSeen(element)) seen.push(element);
    }
    seen.sort((a, b) => a.compareDocumentPosition(b) & 4 ? -1 : 1);
    return [...new Set(seen.map((e) => cut(e.innerText) || nameOf(e)))].filter(Boolean);
  };
  const page = () => ({url: location.href, title: cut(document.title, 50),
    document: performance.timeOrigin});

  // ---- the probe --------------------------------------------------------------
  let home = ''; // the start_url that this document was loaded for
  const probe = {
    isAt(url) { return home === url; },
    stayAt(url) { home = url; },
    before(point, isScroll) {
      observer.takeRecords();
      done = none();
      late = none();
      hit = null;
      isLeaving = false;
      isActing = true;
      scrolls = isScroll ? scrollersAt(...point) : [];
      return {...page(), hit: point ? describeHit(...point) : null,
        focus: describeFocus(), scrolls: scrolls.map(position)};
    },
    async settle(quiet_ms, cap_ms) {
      note(observer.takeRecords());
      const start = now();
      const two = new Promise((done) => frame(() => frame(done)));
      await Promise.race([two, new Promise((done) => after_ms(done, quiet_ms))]);
      note(observer.takeRecords());
      if (lastChange <= start) return;
      for (;;) {
        const left_ms = Math.min(quiet_ms - (now() - lastChange), cap_ms - (now() - start));
        if (left_ms <= 0) return;
        await new Promise((done) => after_ms(done, left_ms));
      }
    },
    resume() { // the action goes on: what came since the last look is its doing
      note(observer.takeRecords());
      done.changes += late.changes;
      done.styles += late.styles;
      done.added.push(...late.added);
      late = none();
      isActing = true;
    },
    changedAt() { // when anything changed last, as performance.now() tells it
      note(observer.takeRecords());
      return lastChange;
    },
    freeze() { // what follows is not the action's doing
      note(observer.takeRecords());
      isActing = false;
    },
    after() {
      observer.takeRecords();
      const names = appeared();
      return {...page(), leaving: isLeaving, changes: done.changes,
        styles: done.styles,
        appeared: names.slice(0, 3), more: Math.max(0, names.length - 3),
        focus: describeFocus(), scrolls: scrolls.map(position),
        state: hit && hit.isConnected ? stateOf(hit) : null,
        chosen: hit && hit.tagName === 'SELECT' && hit.selectedOptions.length
          ? cut(hit.selectedOptions[0].text) : ''};
    },
    selectAll() {
      const element = focused();
      if (typeof element.select === 'function') element.select();
      else element.ownerDocument.getSelection().selectAllChildren(element);
    },
    focusHit() { if (hit) hit.focus(); },
    fill(text) { // native widgets take a value, not keys; says what is wrong with it
      const element = focused();
      const before = element.value;
      let value = text.trim();
      if (element.tagName === 'SELECT') {
        const low = value.toLowerCase();
        const option = [...element.options].find((o) => !o.disabled &&
          [o.text.trim().toLowerCase(), o.value.toLowerCase()].includes(low));
        if (!option) return `no such option, it has ${optionsOf(element).join(', ')}`;
        value = option.value;
      }
      element.value = value;
      const isRefused = element.value === '' && value !== '' ||
        (element.type === 'color' && element.value !== value.toLowerCase());
      if (isRefused) {
        element.value = before;
        return `the field takes ${FORMATS[element.type] || 'a number'}`;
      }
      if (element.value === before) return '';
      element.dispatchEvent(new Event('input', {bubbles: true}));
      element.dispatchEvent(new Event('change', {bubbles: true}));
      return '';
    },
  };
  Object.defineProperty(window, '__probe', {value: Object.freeze(probe)});

  // A blinking caret would make two captures of the same page differ.
  const sheet = new CSSStyleSheet();
  sheet.replaceSync('* { caret-color: transparent !important; }');
  document.adoptedStyleSheets.push(sheet);
})();
