// Fields for a time: a text that cannot be read has a message beside the field, as it is typed.

import { h, setText } from "./dom.js";
import { isLocal, stamp } from "./format.js";

/** Times that the API reads: RFC 3339 with a zone, or a time from now. */
const WITH_ZONE = /^\d{4}-\d{2}-\d{2}[tT ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?([zZ]|[+-]\d{2}:\d{2})$/;
const RELATIVE = /^\+(?=pt?\d|\d)p?(\d{1,5}d)?t?(\d{1,9}[hms])*(\d{1,9})?$/i;
const EXAMPLE = "Write +4h, or 2027-01-15T08:00:00Z";

/** Returns the fault in the text of a time; empty: none. */
export function wrongTime(text) {
  if (!text || RELATIVE.test(text)) return "";
  if (WITH_ZONE.test(text))
    return Number.isNaN(Date.parse(text)) ? `This date or time does not exist. ${EXAMPLE}.` : "";
  if (/^\d{4}-\d{2}-\d{2}[tT ]\d{2}:\d{2}(:\d{2})?$/.test(text))
    return `The zone is missing: ${text}Z is in UTC.`;
  return `This cannot be read as a time. ${EXAMPLE}.`;
}

/** Returns the line below a field that names the fault in its time, at every change. */
export function timeHint(input) {
  const line = h("span", { className: "bad", id: `${input.id}-time`, role: "status" });
  const check = () => {
    const wrong = wrongTime(input.value.trim());
    setText(line, wrong);
    if (wrong) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  };
  input.addEventListener("input", check);
  return line;
}

/** Returns a picker of a date and time, in the selected zone, which enters them in a text field. */
export function timePicker(input, label) {
  const moved = h("span", { className: "soft", role: "status" });
  const picker = h("input", {
    type: "datetime-local",
    tabIndex: -1, // with the keyboard, the text field is quicker
    aria: { label: `${label}: date and time` },
    onchange: () => {
      const { value } = picker;
      if (!value) return;
      input.value = isLocal() ? new Date(value).toISOString() : `${value}:00Z`;
      setText(moved, isLocal() ? skipped(value) : "");
      input.dispatchEvent(new Event("input", { bubbles: true }));
    },
  });
  return h("span", {}, picker, " ", moved);
}

/** Says what becomes of a local time that clocks skip; empty: the time exists. */
function skipped(value) {
  const [day, time, zone] = stamp(Date.parse(value));
  return `${day}T${time.slice(0, 5)}` === value.slice(0, 16)
    ? ""
    : `Clocks skip ${value.slice(11, 16)} on this day: it becomes ${time.slice(0, 5)} ${zone}.`;
}
