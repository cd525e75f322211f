// The live tail of a stream, built on Weir's JavaScript client. Pausing ends the subscription, and
// resuming continues after the last batch. So the page misses no batch, and no batches pile up in
// the browser while it is paused. A hidden page pauses by itself: over HTTP/1.1 a browser opens at
// most six connections to a server, and if hidden tabs held all six, no other page could load.
import {Caller} from './client/call.js';
import {Subscription} from './client/subscription.js';
import {bytes, number, say, toSignIn} from './shared.js';

const kept = 500; // batches on the page
const keptSize = 16 << 20; // total size of those batches, in characters of JSON or bytes of raw data
const shown = 4000; // characters shown of each batch before "Show more"
const most = 200000; // characters shown of each batch after "Show more"

const el = (name, text, className) => {
	const e = document.createElement(name);
	if (text != null) e.textContent = text;
	if (className) e.className = className;
	return e;
};

// hex formats bytes as a hex dump: offset, sixteen bytes, and their printable characters.
export const hex = data => {
	const lines = [];
	for (let i = 0; i < data.length; i += 16) {
		const row = [...data.slice(i, i + 16)];
		lines.push(i.toString(16).padStart(8, '0') + '  ' + row.map(b => b.toString(16).padStart(2, '0')).join(' ').padEnd(47) +
			'  ' + row.map(b => b >= 32 && b < 127 ? String.fromCharCode(b) : '.').join(''));
	}
	return lines.join('\n');
};

// pretty indents JSON. It works on the text, because parsing would round large numbers.
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

// parse parses a batch but keeps its events as the published text, because parsing would round
// large numbers.
const parse = text => {
	const value = JSON.parse(text);
	if (value.events) value.events = [{count: value.events.length, text: text.slice(text.indexOf('"events":') + 9, -1)}];
	return value;
};

// sizeOf returns the size of a batch. Items that report a gap or the end of the stream count as 0.
const sizeOf = item => item.data?.length ?? item.events?.[0]?.text.length ?? 0;

// fitting takes a list with the newest item first. It returns how many items at the start of the
// list fit within both limits, but at least 1.
const fitting = list => {
	let size = 0;
	const n = list.findIndex((item, i) => i === kept || (size += item.size ?? sizeOf(item)) > keptSize && i > 0);
	return n < 0 ? list.length : n;
};

export class Tail {
	constructor(address, mode, opened) {
		this.address = address;
		this.mode = mode;
		this.batches = []; // on the page, newest first
		this.waiting = []; // received, to be added with the next animation frame
		this.size = 0; // total size of the waiting batches
		this.caller = new Caller(location.origin, {key: '', timeout: 20000, fetch: async (path, options) => {
			const answer = await fetch(path, {...options, credentials: 'same-origin'}); // the session cookie authorises the request
			if (answer.status === 401) toSignIn();
			if (answer.ok && /\/tail(\?|$)/.test(path)) {
				this.say('following');
				opened();
			}
			return answer;
		}});
		const id = name => document.querySelector('#tail' + name);
		Object.assign(this, {list: id(''), state: id('-state'), go: id('-go'), from: id('-from'), seq: id('-seq'), filter: id('-filter'), empty: id('-empty')});
		this.pretty = id('-pretty');
		this.raw = id('-raw');
		id('-form').addEventListener('submit', event => event.preventDefault());
		this.go.addEventListener('click', () => { this.stop ? this.over('paused') : this.resume(); });
		id('-clear').addEventListener('click', () => this.clear());
		this.from.addEventListener('change', () => {
			id('-seq-label').hidden = this.from.value !== 'after';
			if (this.from.value !== 'after') this.restart();
			else this.seq.focus();
		});
		this.seq.addEventListener('change', () => this.restart());
		this.filter.addEventListener('input', () => { for (const b of this.batches) this.sift(b); });
		for (const e of [this.pretty, this.raw]) e?.addEventListener('change', () => { for (const b of this.batches) this.fill(b); });
		document.addEventListener('visibilitychange', () => {
			if (document.hidden && this.stop) this.doze();
			else if (!document.hidden && this.dozing) this.resume();
		});
		this.restart();
	}

	// restart clears the list and follows the stream from the position that the user chose in the
	// form.
	restart() {
		this.clear();
		this.over('connecting');
		this.start = this.from.value === 'head' ? {cursor: 'head'} : this.from.value === '0' ? {cursor: 'oldest'} : {after: Number(this.seq.value.trim() || 0)};
		if (document.hidden) this.doze();
		else this.resume();
	}

	// resume follows the stream after the last batch that was shown.
	async resume() {
		this.stop?.abort();
		const stop = this.stop = new AbortController();
		this.dozing = false;
		this.go.textContent = 'Pause';
		this.say('connecting');
		try {
			const subscription = this.subscription = new Subscription(this.caller, this.address, parse, {
				...this.start, signal: stop.signal,
				onRetry: (error, wait) => this.say(`${this.reason(error)}, retrying in ${Math.ceil(wait / 1000)} s`),
			});
			for await (const batch of subscription) {
				this.add(batch);
			}
			if (stop.signal.aborted) return;
			this.add({ended: true});
			this.over('the stream was deleted');
		} catch (error) {
			if (stop.signal.aborted) return;
			this.over('not following: ' + this.reason(error));
		}
	}

	// reason returns the text to show for an error.
	reason(error) {
		if (error.name === 'ResetError') return 'the stream was deleted and created again';
		if (error.status) return error.message.replace(/^\w+: /, '');
		return error instanceof TypeError ? 'not a sequence number' : 'connection lost';
	}

	// over ends the subscription, remembers its position for the next resume, and shows the reason.
	over(why) {
		this.stop?.abort();
		if (this.stop && this.subscription) this.start = this.subscription.resume;
		this.stop = null;
		this.dozing = false;
		this.go.textContent = 'Resume';
		this.say(why);
	}

	// doze pauses the tail until the page becomes visible again.
	doze() {
		this.over('paused while the page is hidden');
		this.dozing = true;
	}

	say(text) { say(this.state, text); }

	clear() {
		this.batches = [];
		this.waiting = [];
		this.size = 0;
		this.list.replaceChildren(this.empty);
	}

	// add queues an item for the next animation frame, so that 1,000 batches/s cost one layout per
	// frame.
	add(item) {
		this.waiting.push(item);
		this.size += sizeOf(item);
		if (this.waiting.length > 2 * kept || this.size > 2 * keptSize) {
			this.waiting = this.waiting.slice(-fitting(this.waiting.toReversed()));
			this.size = this.waiting.reduce((n, item) => n + sizeOf(item), 0);
		}
		if (!this.due) this.due = requestAnimationFrame(() => { this.due = 0; this.flush(); });
	}

	flush() {
		const fresh = this.waiting;
		this.waiting = [];
		this.size = 0;
		this.empty.remove();
		for (const item of fresh) {
			const b = item.gap ? this.mark('gap', item.gap) : item.ended ? this.mark('ended') : this.row(item);
			b.size = sizeOf(item);
			this.batches.unshift(b);
			this.list.prepend(b.element);
		}
		for (const old of this.batches.splice(fitting(this.batches))) old.element.remove();
	}

	mark(kind, gap) {
		const text = kind === 'ended' ? 'The stream was deleted.' :
			`Gap: ${gap.from} to ${gap.to} ` + (gap.reason === 'lost' ? 'were lost: the store was damaged.' : 'were evicted before they could be shown.');
		return {element: el('p', text, kind), mark: true};
	}

	row(batch) {
		const b = {seq: batch.seq, data: batch.data, text: batch.events[0]?.text, element: el('article', null, 'batch')};
		const head = el('header');
		head.append(el('b', batch.seq), el('span', batch.time.toISOString()));
		if (b.data) {
			b.text = new TextDecoder().decode(b.data.slice(0, most));
			head.append(el('span', batch.contentType), el('span', bytes(b.data.length)));
		} else {
			const {count} = batch.events[0];
			head.append(el('span', number(count) + (count === 1 ? ' event' : ' events')), el('span', bytes(b.text.length)));
		}
		b.pre = el('pre');
		b.element.append(head, b.pre);
		this.fill(b);
		this.sift(b);
		return b;
	}

	// fill shows the contents of a batch, cut to the length limit.
	fill(b) {
		if (b.mark) return;
		let text = b.text;
		if (this.mode !== 'raw') text = this.pretty.checked ? pretty(b.text) : b.text;
		else if (this.raw.value === 'hex') text = hex(b.data.slice(0, b.whole ? most / 4 : 512));
		const cut = b.whole ? most : shown;
		b.pre.textContent = text.slice(0, cut);
		b.more?.remove();
		const longer = text.length > cut || this.mode === 'raw' && this.raw.value === 'hex' && !b.whole && b.data.length > 512;
		if (!longer || b.whole) return;
		b.more = el('button', 'Show more of batch ' + b.seq);
		b.more.type = 'button';
		b.more.addEventListener('click', () => { b.whole = true; this.fill(b); });
		b.element.append(b.more);
	}

	// sift hides a batch that does not contain the filter text.
	sift(b) {
		if (!b.mark) b.element.hidden = !b.text.toLowerCase().includes(this.filter.value.toLowerCase());
	}
}
