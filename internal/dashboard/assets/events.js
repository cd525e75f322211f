// The event browser of a stream's page: a list of events, newest first. Users can search the list and
// open each event. At most 500 rows are in the page, whatever the size of the stream. To follow the
// stream, the page asks for new events once per second. So the server never sends more than the page
// can show: a response has at most 100 events, and the page says which batches are left out.
import {ago, ask, bytes, number, say, toSignIn} from './shared.js';
import {button, digits, el, hex, plain, tree, visible} from './value.js';

const kept = 500; // maximum number of rows in the page
const screenful = 30; // matches after which a search pauses
const patience = 5000; // milliseconds after which a search pauses
const openRows = 10; // maximum number of events that are open at the same time
const preview = 64 << 10; // bytes of a large event that are loaded when it is opened
const large = 256 << 10; // size above which only the preview is loaded

const id = name => document.querySelector('#events' + name);
const placeOf = row => row.seq + '.' + row.event;
const seqOf = place => Number(String(place).split('.')[0]);
const count = (n, one) => number(n) + ' ' + one + (n === 1 ? '' : one.endsWith('ch') ? 'es' : 's');

// target turns what the user typed into parameters of a request: a sequence number, an event such as
// 12.3, a time, or a time ago such as 10m. It returns null if the text is none of these.
export const target = (text, now = Date.now()) => {
	text = text.trim();
	if (/^\d+(\.\d+)?$/.test(text)) return {from: text};
	const back = /^(\d+(?:\.\d+)?)\s*(s|m|h|d)(?:\s+ago)?$/.exec(text);
	if (back) return {since: new Date(now - back[1] * {s: 1e3, m: 6e4, h: 36e5, d: 864e5}[back[2]]).toISOString()};
	const today = /^\d{1,2}:\d\d(:\d\d)?$/.test(text) ? new Date(now).toDateString() + ' ' + text : text;
	const time = Date.parse(today);
	return isNaN(time) ? null : {since: new Date(time).toISOString()};
};

export class Events {
	// The parameter at is the address of the stream's page. The parameter show is a function that
	// shows the figures of a response.
	constructor(at, mode, show) {
		Object.assign(this, {at, mode, show, rows: [], open: [], following: true});
		Object.assign(this, {box: id(''), body: id('-rows'), state: id('-state'), search: id('-search'), filter: id('-where'), go: id('-go'), follow: id('-follow'), newer: id('-newer'), older: id('-older'), empty: id('-empty')});
		id('-form').addEventListener('submit', event => { event.preventDefault(); this.submit(); });
		id('-oldest').addEventListener('click', () => this.jump({from: '0'}));
		this.follow.addEventListener('click', () => this.toggle());
		this.newer.addEventListener('click', () => this.moreNewer());
		this.older.addEventListener('click', () => this.moreOlder(true));
		this.box.addEventListener('scroll', () => this.scrolled());
		this.body.addEventListener('click', event => this.clicked(event));
		const given = new URLSearchParams(location.search);
		this.search.value = given.get('q') ?? '';
		this.filter.value = given.get('where') ?? '';
		this.q = this.search.value;
		this.where = this.filter.value.trim();
		const place = target(given.get('at') ?? '');
		this.first = place ? this.jump(place, true) : this.newest();
	}

	// sifts is true if the list has only the events that match a search or a condition.
	get sifts() { return Boolean(this.q || this.where); }

	get isLive() { return this.following && !this.ended; }

	// ask asks for events. A response that comes after the user has asked for something else is
	// dropped: the result is null.
	async ask(parameters) {
		const turn = this.turn;
		const given = new URLSearchParams(parameters);
		if (this.q) given.set('q', this.q);
		if (this.where) given.set('where', this.where);
		const f = await ask(this.at + '/events?' + given);
		if (turn !== this.turn) return null;
		this.show(f);
		this.figures(f);
		return f;
	}

	// begin clears the list, for another place or another search.
	begin() {
		this.turn = (this.turn ?? 0) + 1;
		this.rows = [];
		this.open = [];
		this.body.replaceChildren();
		this.olderAt = this.newerAt = null;
		this.left = 0;
		this.seen = {batches: 0, matches: 0};
		this.note = '';
		this.resumes = false;
		this.loaded = false;
		this.searching = this.sifts;
		this.box.scrollTop = 0;
	}

	// guard calls f and shows why it failed, unless the user has asked for something else meanwhile.
	async guard(f) {
		const turn = this.turn;
		try {
			await f();
		} catch (error) {
			if (turn !== this.turn) return;
			if (error.status === 404) this.end();
			else if (error.status) this.note = 'The server refused: ' + error.message + '.';
			else this.note = 'No response from the server.';
		}
		if (turn !== this.turn) return;
		this.loaded = true;
		this.searching = false;
		this.describe();
	}

	// newest shows the newest events and follows the stream.
	newest() {
		this.begin();
		this.following = true;
		this.describe();
		this.remember('');
		return this.guard(async () => {
			const f = await this.ask({});
			if (!f) return;
			this.cursor = f.published ? f.cursor : -1;
			this.append(f);
			await this.searchOn();
			await this.fillBox();
		});
	}

	// fillBox loads older events until the list is full. One response may not fill it, because a
	// response has few events if they are large.
	async fillBox() {
		while (!this.sifts && this.olderAt && this.box.scrollHeight <= this.box.clientHeight) {
			const f = await this.ask({before: this.olderAt});
			if (!f) return;
			this.append(f);
		}
	}

	// jump shows the events around a place. With the parameter open, it opens the event there.
	jump(where, open) {
		this.begin();
		this.following = false;
		this.describe();
		this.remember(where.from ?? where.since);
		return this.guard(async () => {
			const f = await this.ask(where);
			if (!f) return;
			this.append(f, true);
			this.newerAt = f.more ? f.next : null;
			this.cursor = f.cursor;
			const found = this.rows.at(-1);
			this.olderAt = found ? placeOf(found) : where.from ?? f.next;
			if (found) {
				found.element.classList.add('found');
				if (where.from && seqOf(where.from) > 0 && found.seq !== seqOf(where.from)) this.note = `Sequence ${where.from} is not stored. The next event is ${found.seq}.`;
				if (open && where.from && found.seq === seqOf(where.from)) this.expand(found);
			} else this.note = 'There is no later event.';
			await this.moreOlder();
			await this.fillBox();
			if (found) this.box.scrollTop = Math.max(0, found.element.offsetTop - this.box.clientHeight / 2);
		});
	}

	submit() {
		const text = this.go.value.trim();
		const where = text ? target(text) : null;
		this.q = this.search.value;
		this.where = this.filter.value.trim();
		if (text && !where) {
			this.note = 'Go to: not a sequence number and not a time.';
			this.describe();
			return;
		}
		this.go.value = '';
		if (where) this.jump(where);
		else this.newest();
	}

	// remember puts the place and the search into the address of the page, so that users can save and share the address.
	remember(at) {
		const q = new URLSearchParams(), span = new URLSearchParams(location.search).get('span');
		if (span) q.set('span', span);
		if (at) q.set('at', at);
		if (this.q) q.set('q', this.q);
		if (this.where) q.set('where', this.where);
		history.replaceState(null, '', location.pathname + (q.size ? '?' + q : '') + location.hash);
	}

	// searchOn continues a search until it has found a screenful or the user has waited long enough.
	async searchOn() {
		const until = Date.now() + patience;
		while (this.sifts && this.olderAt && this.seen.matches < screenful && Date.now() < until) {
			this.describe();
			const f = await this.ask({before: this.olderAt});
			if (!f) return;
			this.append(f);
		}
	}

	// poll asks for events that are new since the last call.
	poll() {
		this.polling ??= this.pollOnce().finally(() => { this.polling = null; });
		return this.polling;
	}

	async pollOnce() {
		await this.first;
		if (!this.isLive || this.newerAt || !this.loaded) return; // until the list is loaded, this.cursor belongs to the previous list
		if (this.cursor === undefined) return this.newest(); // the first request failed
		try {
			const f = await this.ask({floor: this.cursor + 1});
			if (f) this.prepend(f);
		} catch (error) {
			if (error.status !== 404) throw error;
			this.end();
		}
		this.describe();
	}

	async moreOlder(again) {
		if (!this.olderAt || this.loading) return;
		this.loading = true;
		this.searching = this.sifts;
		this.describe();
		this.seen.matches = 0;
		await this.guard(async () => {
			const f = await this.ask({before: this.olderAt});
			if (!f) return;
			this.append(f);
			if (again) await this.searchOn();
		});
		this.loading = false;
	}

	async moreNewer() {
		if (this.loading) return;
		this.loading = true;
		await this.guard(async () => {
			const f = await this.ask({from: this.newerAt});
			if (!f) return;
			this.cursor = f.cursor;
			this.newerAt = f.more ? f.next : null;
			this.insert(f.rows, true);
		});
		this.loading = false;
	}

	// append adds older events.
	append(f, upwards) {
		this.insert(f.rows, false);
		this.seen.batches += f.searched;
		this.seen.matches += f.rows.length;
		if (!upwards) this.olderAt = f.more ? f.next : null;
	}

	// prepend adds new events. If the response does not reach down to the events in the page, the
	// stream is faster than the page, and a line says which batches are left out.
	prepend(f) {
		const from = this.cursor + 1;
		this.cursor = f.published ? f.cursor : -1;
		this.left = 0;
		this.seen.batches += f.searched;
		if (f.more) {
			const to = seqOf(f.next) - (f.next.endsWith('.0') ? 1 : 0);
			this.left = to - from + 1;
			const line = this.line('gap', `Too many events to show: ${count(this.left, 'batch')} left out, ${from} to ${to}. `);
			line.element.firstChild.append(button('Show these', () => this.jump({from: String(from)})));
			this.place([line], true);
		}
		this.insert(f.rows, true, f.more);
	}

	// insert adds rows, newest first, above or below those in the page. Between events that do not
	// follow each other, a line says which sequences are missing, unless the list shows the matches of a search.
	insert(list, above, apart) {
		const fresh = [];
		const next = above ? this.rows.find(r => !r.mark) : null;
		let last = above ? null : this.rows.findLast(r => !r.mark);
		const gap = (high, low) => {
			if (this.sifts || !high || !low || high.seq - low.seq < 2) return;
			const [a, b] = [low.seq + 1, high.seq - 1];
			fresh.push(this.line('gap missing', a === b ? `Sequence ${a} is not stored.` : `Sequences ${a} to ${b} are not stored.`));
		};
		for (const item of list) {
			gap(last, item);
			fresh.push(last = this.row(item));
		}
		if (list.length && !apart) gap(last, next);
		this.place(fresh, above);
		if (list.length) ago();
	}

	// place puts rows into the page, and removes rows at the other end if there are too many.
	place(fresh, above) {
		const elements = fresh.map(r => r.element);
		if (above) {
			this.rows.unshift(...fresh);
			this.body.prepend(...elements);
			if (this.rows.length > kept) {
				this.drop(this.rows.splice(kept));
				const last = this.rows.findLast(r => !r.mark);
				if (last) this.olderAt = placeOf(last);
			}
			return;
		}
		this.rows.push(...fresh);
		this.body.append(...elements);
		if (this.rows.length > kept) {
			this.drop(this.rows.splice(0, this.rows.length - kept));
			const first = this.rows.find(r => !r.mark);
			if (first) this.newerAt = first.seq + '.' + (first.event + 1);
			this.following = false;
		}
	}

	drop(list) {
		for (const r of list) {
			if (r.detail) this.collapse(r);
			r.element.remove();
		}
	}

	line(className, text) {
		const element = el('tr', null, className), cell = el('td', text);
		cell.colSpan = 4;
		element.append(cell);
		return {mark: true, missing: className.includes('missing'), element};
	}

	row(item) {
		const r = {...item, element: el('tr', null, 'event')};
		const toggle = button('', () => {}, 'toggle');
		toggle.ariaExpanded = 'false';
		toggle.ariaLabel = 'Event ' + placeOf(item);
		const link = el('a', String(item.seq));
		link.href = '?at=' + placeOf(item);
		link.title = 'Link to this event';
		const seq = el('td', null, 'seq');
		seq.append(toggle, link);
		if (item.events > 1) seq.append(el('span', ` ${item.event + 1}/${item.events}`, 'soft'));
		const time = el('time', item.time.replace('T', ' ').replace(/\.\d+Z$/, '') + ' UTC');
		time.dateTime = item.time;
		const when = el('td', null, 'when');
		when.append(time);
		r.element.append(seq, when, el('td', bytes(item.size), 'right'), el('td', visible(item.text) + (item.cut ? '…' : ''), 'first mono'));
		r.toggle = toggle;
		return r;
	}

	clicked(event) {
		const line = event.target.closest('tr.event');
		if (!line || event.target.closest('a') || getSelection().toString() && !event.target.closest('.toggle')) return;
		const row = this.rows.find(r => r.element === line);
		if (row?.detail) this.collapse(row);
		else if (row) this.expand(row);
	}

	collapse(row) {
		row.detail.remove();
		row.detail = row.data = null;
		row.toggle.ariaExpanded = 'false';
		this.open = this.open.filter(r => r !== row);
	}

	// expand opens an event. If the event is large, expand loads only its beginning.
	async expand(row) {
		row.toggle.ariaExpanded = 'true';
		row.detail = el('tr', null, 'detail');
		const cell = el('td');
		cell.colSpan = 4;
		row.detail.append(cell);
		row.element.after(row.detail);
		this.open.push(row);
		if (this.open.length > openRows) this.collapse(this.open[0]);
		const bar = el('div', null, 'bar'), views = el('select'), all = el('div', null, 'value'), said = el('span', null, 'soft');
		views.ariaLabel = 'Show as';
		for (const name of ['JSON', 'Text', 'Hex']) views.append(el('option', name));
		const isJSON = this.mode === 'json' || /json/i.test(row.type ?? '');
		views.value = isJSON ? 'JSON' : row.hex ? 'Hex' : 'Text';
		const address = `${this.at}/events/${placeOf(row)}`;
		const draw = () => {
			const text = () => new TextDecoder().decode(row.data);
			all.replaceChildren(views.value === 'Hex' ? hex(row.data) : views.value === 'JSON' ? tree(text()) : plain(text()));
		};
		const load = async whole => {
			try {
				const answer = await fetch(address + (whole ? '' : '?first=' + preview), {signal: AbortSignal.timeout(60000)});
				if (answer.status === 401) return toSignIn();
				if (!answer.ok) throw new Error((await answer.json().catch(() => null))?.error?.message ?? 'the server responded with status ' + answer.status);
				row.data = new Uint8Array(await answer.arrayBuffer());
			} catch (error) {
				all.replaceChildren(el('p', 'Refused: ' + error.message, 'soft'));
				return;
			}
			if (!row.detail) return;
			draw();
			const cut = row.data.length < row.size;
			more.hidden = !cut;
			say(said, [cut ? `the first ${bytes(row.data.length)} of ${bytes(row.size)}` : bytes(row.size), row.events > 1 ? `event ${row.event + 1} of ${row.events}` : '', row.type].filter(Boolean).join(', '));
		};
		const more = button(`Load all ${bytes(row.size)}`, () => load(true));
		more.hidden = true;
		views.addEventListener('change', draw);
		const copy = async (what, text) => {
			try {
				await navigator.clipboard.writeText(await text());
				say(document.querySelector('#said'), `The ${what} was copied.`);
			} catch { // browsers refuse access to the clipboard over plain HTTP
				getSelection().selectAllChildren(all);
				say(document.querySelector('#said'), `The ${what} could not be copied. Its visible part is selected.`);
			}
		};
		const save = el('a', 'Download', 'button');
		save.href = address;
		save.download = '';
		bar.append(views, button('Copy', () => copy('event', async () => {
			if (row.data.length < row.size) await load(true);
			return views.value === 'Hex' ? digits(row.data) : new TextDecoder().decode(row.data);
		})), button('Copy link', () => copy('link', async () => location.origin + location.pathname + '?at=' + placeOf(row))), save, more, said);
		cell.append(bar, all);
		await load(row.size <= large);
	}

	// figures keeps the list in agreement with the figures of the page: it marks evicted events, and
	// reads the newest events again if batches that the list showed as missing have been published.
	figures(f) {
		const oldest = f.oldest?.Seq ?? Infinity;
		for (const r of this.rows) {
			if (r.mark || r.seq >= oldest || r.gone) continue;
			r.gone = true;
			r.element.classList.add('gone');
			r.element.querySelector('.seq').append(' ', el('span', 'evicted', 'tag'));
		}
		const filled = this.missing > f.missing && this.rows.some(r => r.missing);
		this.missing = f.missing;
		this.total = f.batches;
		this.head = f.published ? f.cursor : -1;
		if (filled && this.isLive && !this.newerAt) queueMicrotask(() => this.newest());
	}

	// behind applies figures that arrive without events, which happens while the list is paused.
	behind(f) {
		this.figures(f);
		this.describe();
	}

	scrolled() {
		if (this.isLive && this.box.scrollTop > 40) {
			this.following = false;
			this.resumes = true;
		} else if (this.resumes && this.box.scrollTop === 0) {
			this.resumes = false;
			this.following = !this.newerAt;
		}
		const {scrollTop, scrollHeight, clientHeight} = this.box;
		if (!this.sifts && scrollTop + clientHeight > scrollHeight - 200) this.moreOlder();
		this.describe();
	}

	toggle() {
		this.resumes = false;
		this.note = '';
		if (this.isLive) this.following = false;
		else if (this.newerAt || this.head - this.cursor > kept) return this.newest();
		else {
			this.following = true;
			this.box.scrollTop = 0;
			return this.poll();
		}
		this.describe();
	}

	end() {
		if (this.ended) return;
		this.ended = true;
		this.place([this.line('ended', 'The stream was deleted.')], true);
	}

	// describe says what the list shows.
	describe() {
		const parts = [];
		if (this.ended) parts.push('The stream was deleted.');
		else if (this.isLive) parts.push(this.left ? `Following. The stream is too fast: ${count(this.left, 'batch')} left out.` : 'Following.');
		else {
			const behind = this.head - (this.newerAt ? this.rows.find(r => !r.mark)?.seq ?? 0 : this.cursor);
			parts.push(behind > 0 ? `Paused, ${count(behind, 'batch')} behind.` : 'Paused.');
		}
		if (this.sifts) {
			const n = this.rows.filter(r => !r.mark).length;
			const matches = n === 1 ? '1 match' : number(n) + ' matches';
			parts.push(`${matches} in ${count(this.seen.batches, 'batch')} of ${number(this.total ?? 0)}${this.searching ? ', searching' : this.olderAt ? '' : ', all searched'}.`);
		}
		if (this.note) parts.push(this.note);
		say(this.state, parts.join(' '));
		say(this.follow, this.isLive ? 'Pause' : 'Follow');
		this.follow.disabled = Boolean(this.ended);
		say(this.older, this.sifts ? 'Continue searching' : 'Older events');
		this.older.hidden = !this.olderAt;
		this.newer.hidden = !this.newerAt;
		this.empty.hidden = this.rows.length > 0 || !this.loaded;
		say(this.empty, this.sifts ? 'No event was found.' : 'No event is stored. Events appear here as they are published.');
	}
}
