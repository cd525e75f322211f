// How an event is shown: as a JSON tree that can be folded, as text, or in hex. Whatever the size of
// the event, only a bounded part of it is in the page: the members of an object or array are added
// when it is unfolded, a hundred at a time, and text and hex are shown in pages.

export const el = (name, text, className) => {
	const e = document.createElement(name);
	if (text != null) e.textContent = text;
	if (className) e.className = className;
	return e;
};

export const button = (text, click, className) => {
	const b = el('button', text, className);
	b.type = 'button';
	b.addEventListener('click', click);
	return b;
};

// visible replaces a character by its number if it is invisible, controls a terminal, or changes
// the direction of the text around it. The server does the same for names.
const unseen = /(?![\t\n\r\u200c\u200d])[\p{Cc}\p{Cf}\u2028\u2029]/gu;
export const visible = text => text.replace(unseen, c => `[U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}]`);

const kids = 100; // members that are added to the page at a time
const opened = 200; // nodes of a tree that are unfolded from the start
const long = 2000; // characters of a string that are shown at first
const stretch = 20000; // characters that "more" adds to a string, and characters of text on a page
const hexPage = 4096; // bytes of hex on a page

// The functions below work on the text of the JSON, because JSON.parse would round large numbers
// and hide duplicate members. A text that was cut off counts as complete where it ends.

const blank = c => c === 32 || c === 10 || c === 13 || c === 9;
const skipBlank = (t, i) => { while (i < t.length && blank(t.charCodeAt(i))) i++; return i; };

const afterString = (t, i) => {
	for (;;) {
		i = t.indexOf('"', i + 1);
		if (i < 0) return t.length;
		let slashes = 0;
		while (t.charCodeAt(i - 1 - slashes) === 92) slashes++;
		if (slashes % 2 === 0) return i + 1;
	}
};

// after returns the index after the end of the value that begins at i.
const after = (t, i) => {
	const c = t[i];
	if (c === '"') return afterString(t, i);
	if (c !== '{' && c !== '[') {
		while (i < t.length && !',]} \n\r\t'.includes(t[i])) i++;
		return i;
	}
	for (let depth = 0; i < t.length; i++) {
		const c = t.charCodeAt(i);
		if (c === 34) i = afterString(t, i) - 1;
		else if (c === 123 || c === 91) depth++;
		else if ((c === 125 || c === 93) && --depth === 0) return i + 1;
	}
	return t.length;
};

// members yields the members of the object or array that begins at i.
const members = function* (t, i) {
	const object = t[i] === '{';
	for (i = skipBlank(t, i + 1); i < t.length && t[i] !== '}' && t[i] !== ']';) {
		let key = null;
		if (object) {
			const end = afterString(t, i);
			key = t.slice(i, end);
			i = skipBlank(t, skipBlank(t, end) + 1);
			if (i >= t.length) return;
		}
		const end = after(t, i);
		yield {key, from: i, to: end};
		i = skipBlank(t, end);
		if (t[i] === ',') i = skipBlank(t, i + 1);
	}
};

const kind = c => c === '"' ? 's' : c === 't' || c === 'f' ? 'b' : c === 'n' ? 'z' : 'n';

// leaf shows a string, number, true, false or null.
const leaf = (t, from, to) => {
	const e = el('span', null, kind(t[from]));
	let shown = Math.min(to, from + long);
	e.append(visible(t.slice(from, shown)));
	if (shown === to) return e;
	const more = button('more', () => {
		const next = Math.min(to, shown + stretch);
		more.before(visible(t.slice(shown, next)));
		if ((shown = next) === to) more.remove();
	});
	e.append(more);
	return e;
};

// tree shows a JSON text. The result is an element.
export const tree = t => {
	let nodes = 0;
	const node = ({key, from, to}) => {
		nodes++;
		const label = key == null ? [] : [el('span', visible(key), 'k'), ': '];
		if (t[from] !== '{' && t[from] !== '[') {
			const line = el('div');
			line.append(...label, leaf(t, from, to));
			return line;
		}
		const [begin, end] = t[from] === '{' ? ['{', '}'] : ['[', ']'];
		const fold = el('details');
		const head = el('summary');
		head.append(...label, begin, el('span', ' ' + visible(t.slice(from + 1, Math.min(to - 1, from + 60))) + (to - from > 61 ? '…' : '') + end, 'folded'));
		const inside = el('div', null, 'kids');
		fold.append(head, inside, el('div', end, 'end'));
		const list = members(t, from);
		const add = () => {
			for (let i = 0; i < kids; i++) {
				const m = list.next();
				if (m.done) return;
				inside.append(node(m.value));
			}
			inside.append(button(`${kids} more`, e => { e.target.remove(); add(); }));
		};
		let filled = false;
		const fill = () => { if (!filled && fold.open) { filled = true; add(); } };
		fold.addEventListener('toggle', fill);
		if (nodes < opened) { fold.open = true; fill(); }
		return fold;
	};
	const all = el('div', null, 'json');
	const from = skipBlank(t, 0);
	if (from < t.length) all.append(node({key: null, from, to: after(t, from)}));
	return all;
};

// digits returns bytes as pairs of hex digits, sixteen pairs to a line.
const pairs = Array.from({length: 256}, (_, b) => b.toString(16).padStart(2, '0'));
export const digits = data => {
	const lines = [];
	for (let i = 0; i < data.length; i += 16) lines.push(Array.from(data.subarray(i, i + 16), b => pairs[b]).join(' '));
	return lines.join('\n');
};

// dump formats bytes as a hex dump: offset, sixteen bytes, and their printable characters.
const dump = (data, from, to) => {
	const lines = [];
	for (let i = from; i < to; i += 16) {
		const row = [...data.subarray(i, Math.min(i + 16, to))];
		lines.push(i.toString(16).padStart(8, '0') + '  ' + row.map(b => pairs[b]).join(' ').padEnd(47) +
			'  ' + row.map(b => b >= 32 && b < 127 ? String.fromCharCode(b) : '.').join(''));
	}
	return lines.join('\n');
};

// paged shows one page of something long, with buttons for the next and the previous page.
const paged = (length, size, show) => {
	const all = el('div'), pre = el('pre');
	pre.tabIndex = 0;
	pre.ariaLabel = 'Contents of the event';
	let from = 0;
	const turn = by => { from = Math.max(0, Math.min(from + by, length - 1)); pre.textContent = show(from, Math.min(from + size, length)); back.disabled = from === 0; on.disabled = from + size >= length; };
	const back = button('Previous part', () => turn(-size)), on = button('Next part', () => turn(size));
	all.append(pre);
	if (length > size) all.append(back, on);
	turn(0);
	return all;
};

export const hex = data => paged(data.length, hexPage, (from, to) => dump(data, from, to));
export const plain = text => paged(text.length, stretch, (from, to) => visible(text.slice(from, to)));
