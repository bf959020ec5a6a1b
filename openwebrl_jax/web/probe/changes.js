// What changes in this document, what of it is background, and which timers the
// action has set going. Natives are kept here, as a page may replace them.
const frame = window.requestAnimationFrame.bind(window);
const after_ms = window.setTimeout.bind(window);
const now = performance.now.bind(performance);
const clock = () => performance.timeOrigin + now(); // one time for all frames
const QUIET_TAGS = new Set(['SCRIPT', 'STYLE', 'LINK', 'META', 'HEAD', 'TITLE']);
const NOISE = 3; // that many changes that no action asked for: a clock, a banner
const TICKER = 5; // that many within one action go on by themselves
const FADE_MS = 5000; // who has been still for so long is no longer counted
const SAMPLES = 64;
const TIMER_MS = 500; // longer timers of an action are not waited for
const LATE_MS = 20; // a timer may be that late
const CHAIN = 2; // timers set by timers are waited for so deep

const none = () => ({changes: 0, styles: 0, added: []});
let isActing = false, goesOn = false, begun = 0, lastChange = 0, scrolledAt = 0;
let isLeaving = false, isFetching = false; // for another page, or to keep a file
let done = none(), late = none(); // of the action, and since it was looked at
let pulses = new WeakMap(); // element -> its changes that nobody asked for
let beats = new WeakMap(); // element -> how often it changed in this action
let noise = new WeakSet(), judged = new WeakSet(); // as found in this action

const beat = (element, t) => {
  const old = pulses.get(element);
  const pulse = old && t - old.last < FADE_MS ? old : {count: 0, first: t, last: t};
  pulse.count++;
  pulse.last = t;
  pulses.set(element, pulse);
};
// It ticked before the action, and was about to tick again.
const isTicking = (pulse) => pulse && pulse.count >= NOISE &&
  begun - pulse.last <= 2.5 * Math.max(20, (pulse.last - pulse.first) / (pulse.count - 1));
const isNoise = (element) => {
  if (isActing && !judged.has(element)) {
    judged.add(element);
    if (isTicking(pulses.get(element))) noise.add(element);
  }
  return noise.has(element);
};
const isInNoise = (element) => {
  for (let e = element; e; e = e.parentElement) if (noise.has(e)) return true;
  return false;
};

const note = (records) => {
  const t = clock(), counted = new Set();
  for (const record of records) {
    const element = record.target.nodeType === 1 ? record.target
      : record.target.parentElement || record.target.host;
    if (!element || QUIET_TAGS.has(element.tagName)) continue;
    const nodes = [...record.addedNodes].filter((n) => !QUIET_TAGS.has(n.tagName));
    const gone = [...record.removedNodes].filter((n) => !QUIET_TAGS.has(n.tagName));
    if (record.type === 'childList' && !nodes.length && !gone.length) continue;
    const isBackground = isNoise(element);
    if (!counted.has(element)) {
      counted.add(element);
      beats.set(element, (beats.get(element) || 0) + 1);
      if (!isActing || beats.get(element) >= TICKER) beat(element, t);
    }
    if (isBackground) {
      gone.forEach((node) => noise.add(node));
      continue;
    }
    if (beats.get(element) < TICKER) lastChange = t;
    else goesOn = goesOn || (isActing && !isTyped(element));
    const into = isActing ? done : late;
    if (record.attributeName === 'class' || record.attributeName === 'style') {
      into.styles++;
    } else into.changes++;
    if (record.type === 'characterData') nodes.push(record.target);
    into.added.push(...nodes.slice(0, SAMPLES - into.added.length));
  }
};
const WATCHED = {childList: true, subtree: true, characterData: true, attributes: true,
  attributeFilter: ['class', 'style', 'hidden', 'disabled', 'open', 'src',
    'aria-expanded', 'aria-selected', 'aria-checked', 'aria-pressed', 'aria-hidden',
    'aria-invalid']};
// A frame's first page may take over the window of the empty document before it: our
// names stay, the listeners go. So whatever holds on to a document is done again.
let home_document = document;
const arrivals = [];
const onArrival = (act) => { arrivals.push(act); act(); };
const moveIn = () => {
  if (home_document === document) return;
  home_document = document;
  arrivals.forEach((act) => act());
};
const observer = new MutationObserver(note);
const noteScroll = () => { lastChange = scrolledAt = clock(); };
const noteLeaving = (event) => {
  isFetching = isFetching || event.downloadRequest !== null;
  isLeaving = !event.destination.sameDocument && event.downloadRequest === null;
};
onArrival(() => {
  observer.observe(document, WATCHED);
  document.addEventListener('scroll', noteScroll, {capture: true, passive: true});
  if (window.navigation) window.navigation.addEventListener('navigate', noteLeaving);
});

// A page's function with something of ours around it; to the page it looks native.
const around = (owner, name, apply) => {
  if (owner && owner[name]) owner[name] = new Proxy(owner[name], {apply});
};

// Changes in shadow trees are seen only from their roots, and closed roots not at all.
const roots = new Map(); // host -> its root
around(Element.prototype, 'attachShadow', (native, host, args) => {
  const root = Reflect.apply(native, host, args);
  roots.set(host, root);
  observer.observe(root, WATCHED);
  return root;
});
const rootOf = (element) => {
  const root = element.shadowRoot;
  if (root && !roots.has(element)) { // declared in the page's source
    roots.set(element, root);
    observer.observe(root, WATCHED);
  }
  return root || roots.get(element) || null;
};
const scopes = () => {
  for (const host of roots.keys()) if (!host.isConnected) roots.delete(host);
  return [document, ...roots.values()];
};

// When the fades and slides end that are under way; what turns for ever never does.
const stillAt = () => {
  const lefts = document.getAnimations().map((one) => one.playState === 'running'
    ? one.effect.getComputedTiming().endTime - one.currentTime : 0);
  const left_ms = Math.max(0, ...lefts.filter((left) => left <= TIMER_MS));
  return left_ms && clock() + left_ms;
};

const pending = new Map(); // timer that the action has set -> when it is due
let depth = null; // of the timer that runs now; null = none does
around(window, 'setTimeout', (native, self, [run, delay_ms, ...rest]) => {
  const mine = depth ?? (isActing ? 0 : CHAIN);
  const work = typeof run !== 'function' ? run : function (...args) {
    const outer = depth;
    pending.delete(id);
    depth = mine + 1;
    try { return run.apply(this, args); } finally { depth = outer; }
  };
  const id = Reflect.apply(native, self, [work, delay_ms, ...rest]);
  if (mine < CHAIN && delay_ms > 0 && delay_ms <= TIMER_MS) {
    pending.set(id, clock() + Number(delay_ms) + LATE_MS);
  }
  return id;
});
around(window, 'setInterval', (native, self, [run, delay_ms, ...rest]) => {
  const id = Reflect.apply(native, self, [run, delay_ms, ...rest]);
  if ((depth ?? (isActing ? 0 : CHAIN)) < CHAIN && delay_ms > 0 && delay_ms <= TIMER_MS) {
    pending.set(id, clock() + Number(delay_ms) + LATE_MS); // its first time alone
  }
  return id;
});
for (const name of ['clearTimeout', 'clearInterval']) {
  around(window, name, (native, self, args) => {
    pending.delete(args[0]);
    return Reflect.apply(native, self, args);
  });
}
