// The probe: what Python asks before and after an action. One answers for its
// document and for the frames of the same origin in it.
let hit = null, spot = null, was = null, scrolls = [];
let shown = null; // what was rendered before the action
onArrival(() => { shown = null; }); // another document is all new
let home = ''; // the start_url that this document was loaded for
const NAMED = 5, WALKED = 300;
const PAINTED = ['backgroundImage', 'maskImage', 'borderImageSource', 'listStyleImage'];
const PARSING_MS = 20; // until a document that is still coming is looked at again

// All elements of a small page, the ones to act on of a large one.
const watched = () => {
  const all = scopes().flatMap((scope) => [...scope.querySelectorAll('*')]);
  const few = all.length <= 2 * LOOKED_AT ? all
    : scopes().flatMap((scope) => [...scope.querySelectorAll(ACTORS)]);
  return few.length > 2 * LOOKED_AT ? [] : few.filter((e) => !QUIET_TAGS.has(e.tagName));
};
const isInView = (e) => {
  const box = e.getBoundingClientRect(), view = e.ownerDocument.defaultView;
  return box.width > 0 && box.height > 0 && box.bottom > 0 && box.right > 0 &&
    box.top < view.innerHeight && box.left < view.innerWidth;
};
const speaks = (e) => e.matches(ACTORS) || ownText(e) !== '' || e.tagName === 'IMG';
// The parts of a subtree that have a name of their own, outermost first.
const pieces = (root) => {
  const found = [], queue = [root];
  for (let walked = 0; queue.length && walked < WALKED; walked++) {
    const e = queue.shift();
    if (QUIET_TAGS.has(e.tagName)) continue;
    if (speaks(e)) found.push(e);
    else queue.unshift(...e.children, ...(rootOf(e) || {children: []}).children);
  }
  return found;
};
const outermost = (set) => [...set].filter((e) => {
  for (let up = outerOf(e); up; up = outerOf(up)) if (set.has(up)) return false;
  return true;
});
const changed = () => {
  const fresh = new Set(), gone = new Set();
  for (const node of done.added) {
    const element = node.nodeType === 1 ? node : node.parentElement;
    if (element && element.isConnected) fresh.add(element);
  }
  if (shown) {
    for (const e of watched()) if (!shown.has(e) && isShown(e)) fresh.add(e);
    for (const e of shown) if (!isShown(e) && speaks(e)) gone.add(e);
  }
  const names = outermost(fresh)
    .filter((e) => isShown(e) && !isInNoise(e) && !isTyped(e))
    .sort((a, b) => a.compareDocumentPosition(b) & 4 ? -1 : 1)
    .flatMap(pieces).filter((e) => isShown(e) && isInView(e)).map(nameOf).filter(Boolean);
  const lost = outermost(gone).filter((e) => !isInNoise(e)).map(nameOf).filter(Boolean);
  for (const name of [...lost]) { // drawn anew is not changed
    if (!names.includes(name)) continue;
    names.splice(names.indexOf(name), 1);
    lost.splice(lost.indexOf(name), 1);
  }
  return {names: [...new Set(names)], lost: lost.length};
};
const boxOf = (e) => {
  const box = e.getBoundingClientRect();
  return [Math.round(box.left + scrollX), Math.round(box.top + scrollY)];
};
const page = () => ({url: location.href, title: cut(document.title, 50),
  document: performance.timeOrigin});

const local = { // of this document alone
  moveIn,
  begin(isAction) {
    moveIn();
    observer.takeRecords();
    done = none();
    late = none();
    beats = new WeakMap();
    noise = new WeakSet();
    judged = new WeakSet();
    if (!isAction) pulses = new WeakMap(); // setup is neither action nor background
    pending.clear();
    files = wheel = isLeaving = isFetching = goesOn = false;
    menu = '';
    begun = clock();
    isActing = isAction;
    shown = new Set(watched().filter(isShown));
  },
  flush() {
    moveIn();
    note(observer.takeRecords());
  },
  latest: () => lastChange,
  goesOn: () => goesOn,
  isParsing: () => document.readyState === 'loading',
  due: () => Math.max(stillAt(), ...pending.values()),
  scrolled: () => scrolledAt >= begun,
  thaw() { // the action goes on: what came since the last look is its doing
    note(observer.takeRecords());
    done.changes += late.changes;
    done.styles += late.styles;
    done.added.push(...late.added);
    late = none();
    isActing = true;
  },
  stop() {
    note(observer.takeRecords());
    isActing = false;
  },
  told() {
    observer.takeRecords();
    const isNew = shown === null; // a frame that came with the action
    return {...changed(), changes: done.changes + isNew, styles: done.styles, files,
      menu, wheel, fetching: isFetching};
  },
  paints(urls) { // one of these images belongs behind something in view
    return watched().filter(isInView).some((e) => [null, '::before', '::after'].some((part) => {
      const style = getComputedStyle(e, part);
      return PAINTED.some((name) => urls.some((url) => (style[name] || '').includes(url)));
    }));
  },
  family() {
    const frames = scopes().flatMap((scope) => [...scope.querySelectorAll('iframe,frame')]);
    const inner = frames.filter((e) => e.contentDocument && e.contentWindow.__probe);
    return [local, ...inner.flatMap((e) => e.contentWindow.__probe.local.family())];
  },
};
const quiet = async (quiet_ms, cap_ms) => {
  const start = clock();
  local.family().forEach((one) => one.flush());
  const two = new Promise((ready) => frame(() => frame(ready)));
  await Promise.race([two, new Promise((ready) => after_ms(ready, quiet_ms))]);
  for (;;) {
    const all = local.family(), t = clock(); // frames come and go
    all.forEach((one) => one.flush());
    const changed_at = Math.max(...all.map((one) => one.latest()));
    const quiet_at = changed_at > start ? changed_at + quiet_ms : t;
    const isOnItsWay = scrolls.length && !all.some((one) => one.scrolled());
    const moved_at = isOnItsWay ? start + quiet_ms : t; // a wheel is not obeyed at once
    const parsed_at = all.some((one) => one.isParsing()) ? t + PARSING_MS : t;
    const due_at = Math.max(quiet_at, moved_at, parsed_at, ...all.map((one) => one.due()));
    const left_ms = Math.min(due_at, start + cap_ms) - t;
    if (left_ms <= 0) return;
    await new Promise((ready) => after_ms(ready, left_ms));
  }
};
const probe = {
  local: Object.freeze(local),
  isAt(url) { return home === url; },
  stayAt(url) { home = url; },
  before(point, isScroll) { // a page that is only opened has no action to blame
    local.family().forEach((one) => one.begin(isScroll !== undefined));
    hit = null;
    was = focused();
    scrolls = isScroll ? scrollersAt(...point) : [];
    const found = point ? describeHit(...point) : null;
    spot = hit && boxOf(hit);
    return {...page(), hit: found, focus: describeFocus(), scrolls: scrolls.map(position)};
  },
  async settle(quiet_ms, cap_ms) { // what the page still lacks at the end
    const end = clock() + cap_ms;
    await quiet(quiet_ms, cap_ms);
    const left_ms = Math.max(0, end - clock());
    const restless = left_ms < 5 || local.family().some((one) => one.goesOn());
    return {restless, images: await waitForImages(left_ms)};
  },
  resume() { local.family().forEach((one) => one.thaw()); },
  freeze() { local.family().forEach((one) => one.stop()); }, // the rest is not its doing
  after() {
    const parts = local.family().map((one) => one.told());
    const sum = (name) => parts.reduce((total, part) => total + part[name], 0);
    const names = parts.flatMap((part) => part.names);
    const left = was && was.isConnected && was !== focused() && isText(was);
    const isHere = hit && hit.isConnected;
    return {...page(), leaving: isLeaving, fetching: parts.some((part) => part.fetching),
      changes: sum('changes'), styles: sum('styles'),
      appeared: names.slice(0, NAMED), more: Math.max(0, names.length - NAMED),
      vanished: sum('lost'), files: parts.some((part) => part.files),
      wheel: parts.some((part) => part.wheel),
      menu: parts.map((part) => part.menu).find(Boolean) || '',
      focus: describeFocus(), stays: was === focused(), left: left ? describeField(was) : null,
      scrolls: scrolls.map(position), state: isHere ? stateOf(hit) : null,
      moved: Boolean(isHere && spot && boxOf(hit).some((at, axis) =>
        Math.abs(at - spot[axis]) >= 2)),
      list: isHere ? describeList(hit) : null};
  },
  paints: (urls) => local.family().some((one) => one.paints(urls)),
  nameAt(x, y) {
    const {element} = spotAt(x, y);
    return element ? named(actorOf(element)) : 'nothing';
  },
  hitFrame: () => hit,
  focusFrame: () => focused(),
  selectAll() {
    const element = focused();
    if (typeof element.select === 'function') element.select();
    else element.ownerDocument.getSelection().selectAllChildren(element);
  },
  fill(text) { // says what is wrong with the text, if anything is
    const element = focused();
    return element.tagName === 'SELECT' ? choose(element, text.trim())
      : enter(element, text.trim());
  },
};
Object.defineProperty(window, '__probe', {value: Object.freeze(probe)});

// A blinking caret would make two captures of the same page differ.
onArrival(() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync('* { caret-color: transparent !important; }');
  document.adoptedStyleSheets.push(sheet);
});
