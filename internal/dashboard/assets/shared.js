// Helpers that several pages use.

export const bytes = n => {
	for (const unit of ['B', 'KiB', 'MiB', 'GiB', 'TiB']) {
		if (Math.abs(n) < 1024 || unit === 'TiB') return n.toFixed(unit === 'B' || Math.abs(n) >= 99.95 ? 0 : 1) + ' ' + unit;
		n /= 1024;
	}
};

export const number = n => String(n).replace(/\B(?=(\d{3})+$)/g, '\u202f');

export const roughly = seconds => {
	const unit = (n, one) => (n = Math.round(n)) + ' ' + one + (n === 1 ? '' : 's');
	if (seconds < 90) return unit(seconds, 'second');
	if (seconds < 5400) return unit(seconds / 60, 'minute');
	if (seconds < 129600) return unit(seconds / 3600, 'hour');
	return unit(seconds / 86400, 'day');
};

// say sets the text of an element, but only if it differs: a screen reader announces every
// assignment to a live region.
export const say = (element, text) => { if (element && element.textContent !== text) element.textContent = text; };

// local shows every time in the time zone of the browser. The time in UTC stays as the tooltip.
const local = () => {
	for (const e of document.querySelectorAll('time:not([data-ago]):not([title])')) {
		const t = new Date(e.dateTime), two = n => String(n).padStart(2, '0');
		if (isNaN(t)) continue;
		e.title = e.textContent;
		e.textContent = `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} ${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;
	}
};

// ago writes for each time on the page how long ago it was. It writes this next to the time, or
// instead of the time if the element has the attribute data-ago.
export const ago = () => {
	local();
	for (const e of document.querySelectorAll('time[data-ago], time + .ago')) {
		const seconds = (Date.now() - Date.parse((e.matches('time') ? e : e.previousElementSibling).dateTime)) / 1000;
		say(e, seconds < 5 ? 'just now' : roughly(seconds) + ' ago');
	}
};

// fill replaces parts of the page with HTML that the server rendered again. It skips the part that
// has the keyboard focus, because the user would lose the focus.
const filled = {};
export const fill = parts => {
	for (const [name, html] of Object.entries(parts)) {
		const e = document.querySelector(`[data-part="${name}"]`);
		if (!e || filled[name] === html || e.querySelector(':focus')) continue;
		e.innerHTML = filled[name] = html; // safe: the server's template escapes values
	}
	ago();
};

export const toSignIn = () => location.assign('/dashboard/sign-in?next=' + encodeURIComponent(location.pathname + location.search));

// ask fetches JSON. If the session has ended, ask also opens the sign-in page. On failure it throws
// an error. The error's status is the status of the response, or undefined if there was no
// response.
export const ask = async (path, options) => {
	const answer = await fetch(path, {headers: {accept: 'application/json'}, signal: AbortSignal.timeout(20000), ...options});
	if (answer.status === 401) toSignIn();
	const value = await answer.json().catch(() => ({}));
	if (!answer.ok) throw Object.assign(new Error(value.error?.message ?? 'the server responded with status ' + answer.status), {status: answer.status});
	return value;
};

// every calls f at once and then repeatedly while the page is visible. When f fails, a line at the
// bottom of the page says that the page is out of date.
export const every = (milliseconds, f) => {
	const line = document.querySelector('#stale');
	let since = new Date(), timer;
	const turn = async () => {
		clearTimeout(timer);
		if (document.hidden) return; // the visibilitychange event starts the updates again
		try {
			await f();
			since = new Date();
			say(line, '');
			document.body.classList.remove('stale');
		} catch (fault) {
			say(line, fault.status ? `This page is out of date: ${fault.message}.` : `No response from the server since ${since.toLocaleTimeString([], {hour12: false})}. This page shows data from that time.`);
			document.body.classList.add('stale');
		}
		clearTimeout(timer);
		timer = setTimeout(turn, milliseconds);
	};
	document.addEventListener('visibilitychange', turn);
	turn();
};
