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
const on = (name, act, options) => {
  const heard = (event) => {
    const element = event.composedPath()[0];
    if (element && element.nodeType === 1) act(event, element);
  };
  onArrival(() => window.addEventListener(name, heard, options));
};

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

const flat = (text) => text.replace(/\s+/g, ' ').trim();
const groupOf = (o) => o.closest('optgroup');
const isOffered = (o) => [o, groupOf(o)].every((e) => !e || // a list does not show others
  (!e.hidden && getComputedStyle(e).display !== 'none'));
const repeats = (texts) => {
  const once = new Set();
  return new Set(texts.filter((text) => once.has(text) || !once.add(text)));
};
// Each option that is shown with its name: labels that are alike are told apart by
// their groups, and what is alike even so by numbers.
const offersOf = (list, limit = 1000) => {
  const shown = [...list.options].filter(isOffered);
  const alike = repeats(shown.map((o) => flat(o.label))), seen = new Map();
  return shown.map((option) => {
    const label = flat(option.label), group = groupOf(option);
    const full = group && group.label && alike.has(label) ? `${flat(group.label)} / ${label}` : label;
    const number = (seen.get(full) || 0) + 1;
    seen.set(full, number);
    const parts = full === label ? [label] : [flat(group.label), label];
    const name = parts.map((part) => cut(part, limit)).join(' / ');
    return {option, label, name: number > 1 ? `${name} (${number})` : name};
  });
};
const chosenOf = (list) => {
  const names = new Map(offersOf(list).map(({option, name}) => [option, name]));
  return [...list.selectedOptions].map((o) => cut(names.get(o) ?? o.label)).join(', ');
};
const quoted = (name) => name === '' || name.includes(',') ? `'${name}'` : name;
const optionsOf = (list) => {
  const names = offersOf(list, 20).filter(({option}) => !option.matches(':disabled'))
    .map(({name}) => quoted(name));
  const more = names.length - OPTIONS;
  return names.slice(0, OPTIONS).join(', ') + (more > 0 ? ` and ${more} more` : '');
};
// The option that a text means: its label, its name, its value, or the head of a name
// that was told with an ellipsis.
const meant = (list, text) => {
  const same = (a, b) => flat(a).toLowerCase() === flat(b).toLowerCase();
  const offers = offersOf(list), told = offersOf(list, 20);
  const head = text.endsWith('…') ? text.slice(0, -1).toLowerCase() : null;
  const found = offers.find(({label}) => label === text) ||
    offers.find(({name}) => name === text) ||
    offers.find(({name, label, option}, at) =>
      [name, label, option.text, option.value, told[at].name].some((one) => same(one, text))) ||
    offers.find(({name}) => head && name.toLowerCase().startsWith(head));
  const bare = /^(['"])(.*)\1$/.exec(text);
  return found ? found.option : bare ? meant(list, bare[2]) : null;
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
  const options = [...list.options], option = meant(list, text);
  if (!option) return `no such option, it has ${optionsOf(list) || 'none'}`;
  if (option.matches(':disabled')) return `option '${cut(option.label)}' is disabled`;
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
