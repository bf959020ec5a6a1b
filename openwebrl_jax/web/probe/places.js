// What is at a point, what has focus and what scrolls there: through shadow roots
// and frames of the same origin. Frames of others are told as such.
const DEPTH = 8;
const LOOKED_AT = 500; // elements that are compared one by one

const isForeign = (e) => FRAMES.has(e.tagName) && !e.contentDocument;
const pointIn = (holder, x, y) => {
  const box = holder.getBoundingClientRect(), style = getComputedStyle(holder);
  const wide = box.width / holder.offsetWidth || 1, high = box.height / holder.offsetHeight || 1;
  return [(x - box.left) / wide - holder.clientLeft - parseFloat(style.paddingLeft),
    (y - box.top) / high - holder.clientTop - parseFloat(style.paddingTop)];
};
// The innermost element, with its document or root and the point as it counts there.
const spotAt = (x, y) => {
  let spot = {element: null, scope: document, x, y}, scope = document;
  for (let depth = 0; depth < DEPTH; depth++) {
    const element = scope.elementFromPoint(x, y);
    if (!element || element === spot.element) break;
    spot = {element, scope, x, y};
    const root = rootOf(element);
    if (root) scope = root;
    else if (FRAMES.has(element.tagName) && element.contentDocument) {
      [x, y] = pointIn(element, x, y);
      scope = element.contentDocument;
    } else break;
  }
  return spot;
};
const holds = (e, x, y) => {
  const box = e.getBoundingClientRect();
  return x >= box.left && x < box.right && y >= box.top && y < box.bottom;
};
const isShown = (e) => e.isConnected && e.checkVisibility({visibilityProperty: true,
  opacityProperty: true});
const coveredAt = ({element, scope, x, y}) => {
  const lower = scope.elementsFromPoint(x, y).find((e) => e.matches(ACTORS) &&
    !e.contains(element) && !element.contains(e));
  return lower ? named(lower) : '';
};
// Something is drawn there that the pointer does not reach at all.
const blockedAt = ({scope, x, y}) => {
  const modal = scope.querySelector('dialog:modal');
  const isOut = (e) => e.closest('[inert]') || (modal && !modal.contains(e)) ||
    getComputedStyle(e).pointerEvents === 'none';
  const found = [...scope.querySelectorAll(ACTORS)].slice(0, LOOKED_AT).reverse()
    .find((e) => holds(e, x, y) && isShown(e) && isOut(e));
  return found ? named(found) : '';
};
const describeHit = (x, y) => {
  const spot = spotAt(x, y);
  if (!spot.element) return null;
  hit = actorOf(spot.element);
  const isActor = hit.matches(ACTORS);
  return {name: named(hit), disabled: isDisabled(hit), state: stateOf(hit),
    covers: isActor ? '' : coveredAt(spot), blocked: isActor ? '' : blockedAt(spot),
    foreign: isForeign(hit), local: isForeign(hit) ? pointIn(hit, spot.x, spot.y) : null,
    link: hit.matches('a[href]'), tip: cut((hit.closest('[title]') || hit).title, 60)};
};
const innerFocus = (e) => {
  const root = rootOf(e);
  if (root) return root.activeElement;
  return FRAMES.has(e.tagName) && e.contentDocument ? e.contentDocument.activeElement : null;
};
const focused = () => {
  let element = document.activeElement;
  for (let depth = 0; element && depth < DEPTH; depth++) {
    const inner = innerFocus(element);
    if (!inner) break;
    element = inner;
  }
  return element;
};
const isTyped = (e) => { // it stands in the text that keys write
  const field = focused();
  return Boolean(field && field.isContentEditable && field.contains(e));
};
const NOT_TYPED_IN = ['checkbox', 'radio', 'submit', 'reset', 'button', 'image', 'file',
  'hidden'];
const isText = (e) => e.isContentEditable || ['TEXTAREA', 'SELECT'].includes(e.tagName) ||
  (e.tagName === 'INPUT' && !NOT_TYPED_IN.includes(e.type));
const valueOf = (e) => {
  if (e.tagName === 'SELECT') return chosenOf(e);
  if (e.isContentEditable) return e.innerText;
  return typeof e.value === 'string' && isText(e) ? e.value : '';
};
const describeField = (e) => {
  const isSecret = e.type === 'password', value = valueOf(e);
  return {name: named(e), value: isSecret ? '' : value.slice(0, 20000),
    length: value.length, secret: isSecret, text: isText(e), list: e.tagName === 'SELECT',
    fixed: Boolean(e.readOnly) || isDisabled(e), native: NATIVE.has(e.type),
    foreign: isForeign(e), rich: e.isContentEditable,
    lines: e.tagName === 'TEXTAREA' || e.isContentEditable,
    says: e.validity && !e.validity.valid ? cut(e.validationMessage, 80) : ''};
};
const describeFocus = () => {
  const element = focused();
  if (!element || ['BODY', 'HTML'].includes(element.tagName)) return null;
  return describeField(element);
};
const outerOf = (e) => e.assignedSlot || e.parentElement || e.getRootNode().host ||
  (e.ownerDocument !== document && e.ownerDocument.defaultView
    ? e.ownerDocument.defaultView.frameElement : null);
const isScroller = (e) => {
  if (e === e.ownerDocument.scrollingElement) return true;
  const style = getComputedStyle(e), moves = /auto|scroll|overlay/;
  return (e.scrollHeight > e.clientHeight && moves.test(style.overflowY)) ||
    (e.scrollWidth > e.clientWidth && moves.test(style.overflowX));
};
const scrollersAt = (x, y) => {
  const chain = [];
  for (let e = spotAt(x, y).element; e; e = outerOf(e)) if (isScroller(e)) chain.push(e);
  const page = document.scrollingElement;
  return page && !chain.includes(page) ? [...chain, page] : chain;
};
const scrollerName = (e) => {
  if (e !== e.ownerDocument.scrollingElement) return named(e);
  return e.ownerDocument === document && window.parent === window ? 'the page' : 'the frame';
};
const position = (e) => ({name: scrollerName(e), x: Math.round(e.scrollLeft),
  y: Math.round(e.scrollTop), widest: Math.round(e.scrollWidth - e.clientWidth),
  deepest: Math.round(e.scrollHeight - e.clientHeight)});
