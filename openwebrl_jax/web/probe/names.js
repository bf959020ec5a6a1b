// How elements are called, and what state they are in.
const ACTORS = 'a[href],button,input,select,textarea,label,summary,option,' +
  '[onclick],[contenteditable=""],[contenteditable=true],' +
  ['button', 'link', 'checkbox', 'radio', 'tab', 'menuitem', 'option', 'switch',
    'textbox', 'searchbox', 'combobox', 'treeitem', 'slider', 'spinbutton']
    .map((role) => `[role=${role}]`).join(',');
const FRAMES = new Set(['IFRAME', 'FRAME']);

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
  .map((n) => n.data).join(' ').trim();
const nameOf = (e) => {
  if (['BODY', 'HTML'].includes(e.tagName)) return '';
  const label = e.getAttribute('aria-label') || (e.labels && e.labels.length &&
    e.labels[0].innerText);
  if (label) return cut(label);
  if (e.isContentEditable && e.hasAttribute('contenteditable')) { // not what it holds
    return cut(e.getAttribute('aria-placeholder') || e.dataset.placeholder || e.title || e.id);
  }
  if (e.tagName === 'INPUT') {
    const isButton = ['submit', 'reset', 'button'].includes(e.type);
    return cut((isButton && e.value) || e.placeholder || e.alt || e.name || e.id);
  }
  if (['SELECT', 'TEXTAREA'].includes(e.tagName)) {
    return cut(e.placeholder || e.name || e.id);
  }
  const text = e.matches(ACTORS) || ownText(e) ? e.innerText ?? e.textContent : '';
  return cut(text) || cut(e.alt || e.title || e.id);
};
const closedHost = (e) => {
  const host = e.getRootNode().host;
  return host && !host.shadowRoot ? host : null;
};
const named = (e) => {
  const name = nameOf(e), host = closedHost(e);
  const called = name ? `${kindOf(e)} '${name}'` : kindOf(e);
  return host ? `${called} in closed ${kindOf(host)}` : called;
};
// The nearest that has the property, through shadow roots outward.
const outward = (e, selector) => {
  for (let from = e; from; from = from.getRootNode().host) {
    const found = from.closest(selector);
    if (found) return found;
  }
  return null;
};
const actorOf = (e) => outward(e, ACTORS) || e;
const isDisabled = (e) => e.matches(':disabled') ||
  Boolean(outward(e, '[aria-disabled=true],[inert]'));
const stateOf = (element) => {
  const e = element.tagName === 'LABEL' && element.control || element;
  const state = {};
  for (const key of ['checked', 'open']) if (e[key] === true) state[key] = 'true';
  if (e.tagName === 'OPTION' && e.selected) state.selected = 'true';
  if (e.type === 'range') state.value = e.value;
  for (const key of ['expanded', 'selected', 'checked', 'pressed', 'valuenow']) {
    const value = e.getAttribute('aria-' + key);
    if (value !== null) state[key] = cut(value);
  }
  return state;
};
