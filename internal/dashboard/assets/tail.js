// The live tail of a stream. Pausing ends the subscription, and going on resumes it behind the last batch: nothing is missed,
// and nothing piles up in the browser.
import {bytes, number} from './shared.js';

const kept = 500; // batches on the page
const shown = 4000; // characters of a batch, until somebody asks for more
const most = 200000;

const el = (name, text, className) => {
	const e = document.createElement(name);
	if (text != null) e.textContent = text;
	if (className) e.className = className;
	return e;
};

// hex shows bytes as people read them: offset, sixteen of them, and what is printable.
export const hex = data => {
	const lines = [];
	for (let i = 0; i < data.length; i += 16) {
		const row = [...data.slice(i, i + 16)];
		lines.push(i.toString(16).padStart(8, '0') + '  ' + row.map(b => b.toString(16).padStart(2, '0')).join(' ').padEnd(47) +
			'  ' + row.map(b => b >= 32 && b < 127 ? String.fromCharCode(b) : '.').join(''));
	}
	return lines.join('\n');
};

// pretty breaks JSON text into lines. It works on the text itself: parsing would round large numbers.
export const pretty = text => {
	let out = '', depth = 0;
	const line = () => '\n' + '  '.repeat(depth);
	for (let i = 0; i < text.length && out.length < most; i++) {
		const c = text[i];
		if (c === '"') {
			const from = i;
			for (i++; text[i] !== '"'; i++) if (text[i] === '\\') i++;
			out += text.slice(from, i + 1);
		} else if (c === '{' || c === '[') {
			if (text[i + 1] === (c === '{' ? '}' : ']')) out += c + text[++i];
			else { depth++; out += c + line(); }
		} else if (c === '}' || c === ']') { depth--; out += line() + c; }
		else if (c === ',') out += c + line();
		else out += c === ':' ? ': ' : c;
	}
	return out;
};

export class Tail {
	constructor(address, mode, opened) {
		this.opened = opened;
		this.address = address;
		this.mode = mode;
		this.batches = []; // newest first, as they came
		this.waiting = []; // to be put on the page with the next frame
		const id = name => document.querySelector('#tail' + name);
		Object.assign(this, {list: id(''), state: id('-state'), go: id('-go'), from: id('-from'), seq: id('-seq'), filter: id('-filter'), empty: id('-empty')});
		this.pretty = id('-pretty');
		this.raw = id('-raw');
		id('-form').addEventListener('submit', event => { event.preventDefault(); this.source ? this.pause() : this.resume(); });
		id('-clear').addEventListener('click', () => this.clear());
		this.from.addEventListener('change', () => {
			id('-seq-label').hidden = this.from.value !== 'after';
			if (this.from.value !== 'after') this.restart();
			else this.seq.focus();
		});
		this.seq.addEventListener('change', () => this.restart());
		this.filter.addEventListener('input', () => { for (const b of this.batches) this.sift(b); });
		for (const e of [this.pretty, this.raw]) e?.addEventListener('change', () => { for (const b of this.batches) this.fill(b); });
		this.start(this.from.value === 'after' ? this.seq.value : this.from.value);
	}

	// start subscribes. The browser itself reconnects, and names the last batch that it got.
	start(cursor) {
		this.source?.close();
		const source = this.source = new EventSource(this.address + '?cursor=' + encodeURIComponent(cursor));
		this.say('connecting');
		source.onopen = () => { this.say('following'); this.opened(); };
		source.onerror = () => {
			if (source.readyState !== EventSource.CLOSED) return this.say('the connection was lost, trying again');
			this.over('not following: the stream is gone, the sequence is none, or you are signed out');
		};
		source.addEventListener('batch', event => { this.last = event.lastEventId; this.add({batch: event.data}); });
		source.addEventListener('gap', event => { this.last = event.lastEventId; this.add({gap: JSON.parse(event.data)}); });
		source.addEventListener('end', () => { this.add({ended: true}); this.over('the stream was deleted'); });
		this.go.textContent = 'Pause';
	}

	restart() {
		const cursor = this.from.value === 'after' ? this.seq.value.trim() || '0' : this.from.value;
		this.clear();
		this.last = undefined;
		this.start(cursor);
	}

	pause() { this.over('paused'); }

	resume() { this.last === undefined ? this.restart() : this.start(this.last); }

	over(why) {
		this.source?.close();
		this.source = null;
		this.go.textContent = 'Go on';
		this.say(why);
	}

	say(text) { this.state.textContent = text; }

	clear() {
		this.batches = [];
		this.waiting = [];
		this.list.replaceChildren(this.empty);
	}

	// add puts something on the page with the next frame, so that a thousand batches a second cost one layout.
	add(item) {
		this.waiting.push(item);
		if (this.waiting.length > kept) this.waiting.splice(0, this.waiting.length - kept);
		if (!this.due) this.due = requestAnimationFrame(() => { this.due = 0; this.flush(); });
	}

	flush() {
		const fresh = this.waiting;
		this.waiting = [];
		this.empty.remove();
		for (const item of fresh) {
			const b = item.gap ? this.mark('gap', item.gap) : item.ended ? this.mark('ended') : this.row(item.batch);
			this.batches.unshift(b);
			this.list.prepend(b.element);
		}
		for (const old of this.batches.splice(kept)) old.element.remove();
	}

	mark(kind, gap) {
		const text = kind === 'ended' ? 'The stream was deleted.' :
			`Gap: ${gap.from} to ${gap.to} ` + (gap.reason === 'lost' ? 'are lost: the store was damaged.' : 'were evicted before they could be shown.');
		return {element: el('p', text, kind), mark: true};
	}

	row(text) {
		const value = JSON.parse(text);
		const b = {value, text, element: el('article', null, 'batch')};
		const head = el('header');
		head.append(el('b', value.seq), el('span', value.ts));
		if (this.mode === 'raw') {
			b.data = Uint8Array.from(atob(value.data), c => c.charCodeAt(0));
			b.text = new TextDecoder().decode(b.data.slice(0, most));
			head.append(el('span', value.content_type), el('span', bytes(b.data.length)));
		} else {
			// As it was published: parsing would round large numbers.
			b.events = text.slice(text.indexOf('"events":') + 9, -1);
			head.append(el('span', number(value.events.length) + (value.events.length === 1 ? ' event' : ' events')), el('span', bytes(b.events.length)));
		}
		b.pre = el('pre');
		b.element.append(head, b.pre);
		this.fill(b);
		this.sift(b);
		return b;
	}

	// fill shows the contents of a batch, cut where they are long.
	fill(b) {
		if (b.mark) return;
		let text = b.text;
		if (this.mode !== 'raw') text = this.pretty.checked ? pretty(b.events) : b.events;
		else if (this.raw.value === 'hex') text = hex(b.data.slice(0, b.whole ? most / 4 : 512));
		const cut = b.whole ? most : shown;
		b.pre.textContent = text.slice(0, cut);
		b.more?.remove();
		const longer = text.length > cut || this.mode === 'raw' && this.raw.value === 'hex' && !b.whole && b.data.length > 512;
		if (!longer || b.whole) return;
		b.more = el('button', 'Show more of ' + b.value.seq);
		b.more.type = 'button';
		b.more.addEventListener('click', () => { b.whole = true; this.fill(b); });
		b.element.append(b.more);
	}

	sift(b) {
		if (!b.mark) b.element.hidden = !b.text.toLowerCase().includes(this.filter.value.toLowerCase());
	}
}
