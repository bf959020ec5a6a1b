// Fields that the browser draws itself: their popups are no part of the page, so they
// do not open, and the fields take a value instead of keys.
const NATIVE = new Set(['date', 'time', 'datetime-local', 'month', 'week', 'color',
  'range', 'select-one', 'select-multiple']);
const FORMATS = {date: 'YYYY-MM-DD', time: 'HH:MM', month: 'YYYY-MM',
  week: 'YYYY-Www', 'datetime-local': 'YYYY-MM-DDTHH:MM', color: '#rrggbb'};
const OPTIONS = 10; // that many are named
let files = false, menu = '', wheel = false; // what the action came upon

const isList = (e) => e.tagName === 'SELECT' && !e.multiple && e.size <= 1;
const hasPopup = (e) => isList(e) || (e.tagName === 'INPUT' && e.type in FORMATS);
const isFile = (e) => e.tagName === 'INPUT' && e.type === 'file';
const keep = (event) => event.preventDefault();
const on = (name, act, options) => window.addEventListener(name, (event) => {
  const element = event.composedPath()[0];
  if (element && element.nodeType === 1) act(event, element);
}, options);

on('mousedown', (event, element) => {
  if (!event.isTrusted || !isList(element)) return;
  event.preventDefault();
  if (!element.disabled) element.focus({preventScroll: true});
}, true);
on('click', (event, element) => {
  if (isFile(element)) files = true;
  if (isFile(element) || (event.isTrusted && hasPopup(element))) event.preventDefault();
}, true);
on('keydown', (event, element) => {
  const opens = event.key === ' ' || event.key === 'F4' ||
    (event.altKey && event.key.startsWith('Arrow'));
  if (event.isTrusted && opens && hasPopup(element)) event.preventDefault();
}, true);
on('contextmenu', (event) => {
  menu = event.defaultPrevented ? 'own' : 'native';
  event.preventDefault();
});
on('wheel', (event) => after_ms(() => { wheel = wheel || event.defaultPrevented; }, 0),
  {passive: true}); // once the page's own listeners have been asked
around(HTMLElement.prototype, 'click', (native, element, args) => {
  if (isFile(element)) { // one that is not in the page tells no window of its click
    files = true;
    element.addEventListener('click', keep, {capture: true, once: true});
  }
  return Reflect.apply(native, element, args);
});
around(HTMLInputElement.prototype, 'showPicker', (native, element) => {
  if (isFile(element)) files = true;
});
around(window.HTMLSelectElement && HTMLSelectElement.prototype, 'showPicker', () => {});
for (const name of ['showOpenFilePicker', 'showSaveFilePicker', 'showDirectoryPicker']) {
  around(window, name, () => {
    files = true;
    return Promise.reject(new DOMException('The user aborted a request.', 'AbortError'));
  });
}

const optionsOf = (e) => {
  const texts = [...e.options].filter((o) => !o.matches(':disabled')).map((o) => cut(o.text, 20));
  const more = texts.length - OPTIONS;
  return texts.slice(0, OPTIONS).join(', ') + (more > 0 ? ` and ${more} more` : '');
};
const describeList = (e) => isList(e) && !isDisabled(e)
  ? {options: optionsOf(e), chosen: valueOf(e)} : null;

const setters = new Map([[HTMLInputElement, 'value'], [HTMLSelectElement, 'selectedIndex'],
  [HTMLOptionElement, 'selected']].map(([kind, name]) =>
  [name, Object.getOwnPropertyDescriptor(kind.prototype, name).set]));
// Past what a framework has put over the property, so that it notices the change.
const set = (element, name, value) => setters.get(name).call(element, value);
const announce = (element) => {
  element.dispatchEvent(new Event('input', {bubbles: true, composed: true}));
  element.dispatchEvent(new Event('change', {bubbles: true}));
};
const choose = (list, text) => {
  const flat = (s) => s.replace(/\s+/g, ' ').trim().toLowerCase();
  const options = [...list.options];
  const option = options.find((o) => o.text.trim() === text) ||
    options.find((o) => [flat(o.text), flat(o.value)].includes(flat(text)));
  if (!option) return `no such option, it has ${optionsOf(list)}`;
  if (option.matches(':disabled')) return `option '${cut(option.text)}' is disabled`;
  const isSame = [...list.selectedOptions].every((o) => o === option) && option.selected;
  if (isSame) return '';
  if (list.multiple) options.forEach((o) => set(o, 'selected', o === option));
  else set(list, 'selectedIndex', options.indexOf(option));
  announce(list);
  return '';
};
const takes = (field) => {
  const between = [field.min && `from ${field.min}`, field.max && `to ${field.max}`,
    field.step && field.step !== 'any' && `in steps of ${field.step}`];
  return ['the field takes', FORMATS[field.type] || 'a number', ...between]
    .filter(Boolean).join(' ');
};
const enter = (field, text) => {
  const before = field.value;
  if (field.type === 'range' && !/^[+-]?\d*\.?\d+$/.test(text)) return takes(field);
  set(field, 'value', field.type === 'color' ? text.toLowerCase() : text);
  const isLost = field.value === '' && text !== '' ||
    (field.type === 'color' && field.value !== text.toLowerCase());
  const {rangeUnderflow, rangeOverflow, stepMismatch} = field.validity;
  if (isLost || rangeUnderflow || rangeOverflow || stepMismatch) {
    set(field, 'value', before);
    return takes(field);
  }
  if (field.value !== before) announce(field);
  return '';
};
