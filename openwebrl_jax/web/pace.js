// How long to wait for a page: its own timers that an action set, and the images in
// view. Runs in every document before its own scripts, after probe.js.
(() => {
  if (window.__pace) return;
  const LONGEST_MS = 500; // a later timer is a clock or a poll, not an answer
  const DEEPEST = 3; // timers that set timers that set timers
  const IMAGES_MS = 1000;
  const now = performance.now.bind(performance);
  const setLater = window.setTimeout.bind(window);
  const due = new Map(); // timer that the action set -> when it fires
  let isActing = true; // the document itself came by an action
  let depth = 0; // of the timer that runs now; above DEEPEST = not of this action

  const wrapped = (work, id_of, own_depth) => function (...given) {
    const was = depth;
    due.delete(id_of());
    depth = own_depth();
    try {
      return typeof work === 'function' ? Reflect.apply(work, this, given)
        : (0, eval)(String(work));
    } finally {
      depth = was;
    }
  };
  window.setTimeout = new Proxy(window.setTimeout, {
    apply(target, self, [work, delay_ms, ...rest]) {
      if (work === undefined) return Reflect.apply(target, self, [work, delay_ms]);
      const ms = Number(delay_ms) || 0;
      const level = depth + 1;
      const isOwed = isActing && level <= DEEPEST && ms <= LONGEST_MS;
      let id = 0;
      const run = wrapped(work, () => id, () => isActing && isOwed ? level : Infinity);
      id = Reflect.apply(target, self, [run, delay_ms, ...rest]);
      if (isOwed) due.set(id, now() + Math.max(0, ms));
      return id;
    },
  });
  window.setInterval = new Proxy(window.setInterval, {
    apply(target, self, [work, period_ms, ...rest]) {
      if (work === undefined) return Reflect.apply(target, self, [work, period_ms]);
      const ms = Number(period_ms) || 0;
      let id = 0;
      const run = wrapped(work, () => id, () => Infinity);
      id = Reflect.apply(target, self, [run, period_ms, ...rest]);
      // Its first tick is waited for; whether it goes on shows in what it changes.
      if (isActing && depth < DEEPEST && ms <= LONGEST_MS) due.set(id, now() + ms);
      return id;
    },
  });
  for (const name of ['clearTimeout', 'clearInterval']) {
    window[name] = new Proxy(window[name], {
      apply(target, self, given) {
        due.delete(given[0]);
        return Reflect.apply(target, self, given);
      },
    });
  }

  const pause = (ms) => new Promise((done) => setLater(done, ms));
  const all = () => { // this document's and those of its frames that let us in
    const paces = [own];
    for (let index = 0; index < window.length; index++) {
      try {
        if (window[index].__pace) paces.push(window[index].__pace);
      } catch { /* a frame of another site */ }
    }
    return paces;
  };
  const missing = () => [...document.images].filter((image) => {
    if (image.complete) return false;
    const box = image.getBoundingClientRect();
    return box.bottom >= 0 && box.right >= 0 && box.top <= innerHeight &&
      box.left <= innerWidth && image.checkVisibility();
  });
  const parsed = () => new Promise((done) => {
    document.addEventListener('DOMContentLoaded', done, {once: true});
  });
  const loaded = (image) => new Promise((done) => {
    image.addEventListener('load', done, {once: true});
    image.addEventListener('error', done, {once: true});
  });

  const own = Object.freeze({
    begin() { for (const pace of all()) pace.mark(true); },
    end() { for (const pace of all()) pace.mark(false); },
    mark(isOn) { isActing = isOn; due.clear(); },
    owed() { return Math.min(...due.values()); }, // Infinity = nothing
    // Settles by the probe until nothing is owed; says what is not there at the end.
    async settle(probe, quiet_ms, cap_ms) {
      const end = now() + cap_ms;
      const left = () => Math.max(0, end - now());
      if (document.readyState === 'loading') {
        await Promise.race([parsed(), pause(cap_ms)]);
      }
      await probe.settle(quiet_ms, left());
      for (;;) {
        const first = Math.min(...all().map((pace) => pace.owed()));
        if (first === Infinity || !left()) break;
        const start = now();
        await pause(Math.min(left(), Math.max(0, first - now()) + 1));
        while (probe.changedAt() > start && left()) {
          const quiet_left_ms = quiet_ms - (now() - probe.changedAt());
          if (quiet_left_ms <= 0) break;
          await pause(Math.min(left(), quiet_left_ms));
        }
      }
      const isRestless = left() < 5 && cap_ms > 0;
      const images = missing();
      if (images.length) {
        const wait = pause(Math.min(IMAGES_MS, left()));
        await Promise.race([Promise.all(images.map(loaded)), wait]);
      }
      return {restless: isRestless, images: images.length ? missing().length : 0};
    },
  });
  Object.defineProperty(window, '__pace', {value: own});
})();
