"""What an oracle needs to solve some MiniWoB++ pages: page scripts, as data.

A script reads the page and returns the steps that come next, as far as the page shows
them: `[{thought, call: {name, arguments}, others: [{thought, call}]}]`. The thought
names the target; `others` are wrong targets of the same kind. `rollout.oracle` asks
again when the steps are used up.
"""

from typing import Any

GRID = 40  # points are its multiples where one lies on the target: one token each

# aim: the point of the coarsest grid on the target that a click would really reach
# (boxes may overlap), nearest to the target's centre; null = it is not to be seen.
_PRELUDE = """
  const aim = (target) => {
    const box = target.getClientRects()[0];
    if (!box) return null;
    const [w, h] = [innerWidth / 1000, innerHeight / 1000];
    const middle = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
    const between = (low, high, grid) => {
      const first = Math.max(0, Math.ceil(low / grid));
      const last = Math.floor(Math.min(999, high) / grid);
      return Array.from({ length: Math.max(0, last - first + 1) },
        (_, i) => (first + i) * grid);
    };
    for (const grid of [GRID, 10, 1]) {
      let best = null, least = Infinity;
      for (const x of between((box.left + 1) / w, (box.right - 1) / w, grid))
        for (const y of between((box.top + 1) / h, (box.bottom - 1) / h, grid)) {
          const far = Math.hypot(x * w - middle[0], y * h - middle[1]);
          if (far >= least) continue;
          if (!target.contains(document.elementFromPoint(x * w, y * h))) continue;
          [best, least] = [[x, y], far];
        }
      if (best) return best;
    }
    return null;
  };
  const find = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const text = (element) => element.textContent.trim();
  const said = core.getUtterance();
  const quoted = [...said.matchAll(/"(.*?)"/g)].map((match) => match[1]);
  const press = (target, name) => ({
    thought: `click ${name}`,
    call: { name: 'click', arguments: { point_2d: aim(target) } },
  });
  const isVisible = (step) => step.call.arguments.point_2d !== null;
  const click = (target, name, others = []) => ({
    ...press(target, name),
    others: others.map((other) => press(...other)).filter(isVisible),
  });
  const write = (message) => ({
    thought: `write ${message}`,
    call: { name: 'write', arguments: { message } },
    others: [],
  });
  const choose = (pairs, wanted) => {
    const right = pairs.filter(([target, name]) => name === wanted && aim(target));
    const wrong = pairs.filter(([, name]) => name !== wanted);
    return right.slice(0, 1).map(([target, name]) => click(target, name, wrong));
  };
  const named = (targets) => targets.map((target) => [target, text(target)]);
  const submit = () => click(find('#subbtn'), text(find('#subbtn')));
  const fill = (selector, name, message) =>
    [click(find(selector), name), write(message)];
"""

_BUTTONS = "return choose(named(all('#area button')), quoted[0]);"
_ONE = "return choose(named(all('#area button')), 'ONE');"
_BOXES = """
  const wanted = said.match(/^Select (.*) and click Submit/)[1].split(', ');
  const boxes = all('#boxes label').map((label) =>
    [label.querySelector('input'), text(label)]);
  const others = boxes.filter(([, name]) => !wanted.includes(name));
  return [
    ...boxes.filter(([, name]) => wanted.includes(name))
      .map(([box, name]) => click(box, name, others)),
    submit(),
  ];"""
_SECTION = """
  const content = find('.ui-accordion-content');
  if (content.offsetHeight > 0) return [submit()];
  const header = find('#area h3');
  return [click(header, text(header))];"""

SCRIPTS = {
    "click-button": _BUTTONS,
    "click-button-sequence": """
  const [one, two] = all('#area button');
  return [click(one, 'ONE', [[two, 'TWO']]), click(two, 'TWO')];""",
    "click-checkboxes": _BOXES,
    "click-checkboxes-transfer": _BOXES,
    "click-collapsible": _SECTION,
    "click-collapsible-nodelay": _SECTION,
    "click-color": """
  const wanted = said.match(/on the (.*) colored/)[1];
  const boxes = all('#area .color').map((box) => [box, box.dataset.color]);
  return choose(boxes, wanted);""",
    "click-dialog": "return [click(find('.ui-dialog-titlebar-close'), 'x')];",
    "click-dialog-2": """
  const buttons = named(all('.ui-dialog-buttonset button'));
  return choose([...buttons, [find('.ui-dialog-titlebar-close'), 'x']], quoted[0]);""",
    "click-link": "return choose(named(all('#area .alink')), quoted[0]);",
    "click-option": _BOXES,
    "click-tab": """
  return choose(named(all('#area ul a')), said.match(/Tab #\\d/)[0]);""",
    "click-test": "return [click(find('#subbtn'), text(find('#subbtn')))];",
    "click-test-2": _ONE,
    "click-test-transfer": _ONE,
    "click-widget": """
  const widgets = all('#area [data-type]').map((one) => [one, one.dataset.type]);
  return choose(widgets, quoted[0]);""",
    "enter-password": """
  return [
    ...fill('#password', 'Password', quoted[0]),
    ...fill('#verify', 'Verify', quoted[0]),
    submit(),
  ];""",
    "enter-text": "return [...fill('#tt', 'textbox', quoted[0]), submit()];",
    "enter-text-dynamic": "return [...fill('#tt', 'textbox', quoted[0]), submit()];",
    "focus-text": "return [click(find('#tt'), 'textbox')];",
    "focus-text-2": """
  const names = ['1st', '2nd', '3rd'];
  const boxes = all('#area input').map((box, index) => [box, names[index]]);
  return choose(boxes, said.match(/the (\\w+) input/)[1]);""",
    "login-user": """
  return [
    ...fill('#username', 'Username', quoted[0]),
    ...fill('#password', 'Password', quoted[1]),
    submit(),
  ];""",
}


def oracle(name: str) -> dict[str, Any]:
    """The oracle's data of a page; empty where no script of ours solves it."""
    if name not in SCRIPTS:
        return {}
    prelude = _PRELUDE.replace("GRID", str(GRID))
    return {"script": f"() => {{{prelude}{SCRIPTS[name]}\n}}"}
