// Drives the dashboard in a real browser, as an operator would. It checks every page for console
// errors, requests to other origins, size, layout shifts and accessibility (axe), in light and dark,
// on screens of several sizes, under load, and in other states of the server (states.mjs). It takes
// screenshots only if PICTURES is set, as in make screenshots, because drawing them takes long and
// checks nothing. If ONLY is set, it runs only the steps whose
// names contain this text. browser_test.go serves the dashboard, runs this script and passes its
// parameters in the environment.
import {mkdirSync} from 'node:fs';
import {createRequire} from 'node:module';
import {strict as assert} from 'node:assert';
import {chromium} from 'playwright-core';
import {eventSteps} from './events.mjs';
import {keyboardSteps} from './keyboard.mjs';
import {manualSteps} from './manual.mjs';
import {stateSteps} from './states.mjs';

const axe = createRequire(import.meta.url)('axe-core').source;
const {URL: base, STREAM: stream, KEY: key, PASSWORD: password, SHOTS: shots, CHROMIUM: executablePath} = process.env;
mkdirSync(shots, {recursive: true});

const browser = await chromium.launch({executablePath, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--host-resolver-rules=MAP weir.test 127.0.0.1']});
const faults = [];
const pending = new Map(); // for each request that no response has ended yet, when it began
const waiting = []; // functions that are called when a request ends
// answered waits until no request of a page is pending.
const answered = async page => {
	while ([...pending.keys()].some(r => r.frame().page() === page)) await new Promise(resolve => waiting.push(resolve));
};
// fault records a fault. It prints the pending requests, because most timeouts are due to one of them.
const fault = text => {
	faults.push(text);
	console.log('FAULT ' + text);
	for (const [request, begun] of pending) console.log(`  pending for ${Date.now() - begun} ms: ${request.method()} ${request.url()}`);
};
let step = '';

// open opens a page. It records console errors, exceptions, requests to other origins and dialogs
// as faults.
const open = async (options, from = base) => {
	const context = await browser.newContext({viewport: {width: 1280, height: 900}, permissions: ['clipboard-read', 'clipboard-write'], ...options});
	context.setDefaultTimeout(60000); // long, because the machine may be busy; a step waits for events, so a longer limit does not slow it down
	const mine = new Set(); // the pending requests of this context: some of them never end if the context is closed first
	const over = request => {
		mine.delete(request);
		pending.delete(request);
		waiting.splice(0).forEach(resolve => resolve());
	};
	context.on('request', request => { mine.add(request); pending.set(request, Date.now()); });
	context.on('requestfinished', over);
	context.on('requestfailed', over);
	context.on('close', () => mine.forEach(over));
	const page = await context.newPage();
	page.expected = /never/; // matches the console errors that the current step provokes on purpose: at first none
	page.on('console', m => { if (m.type() === 'error' && !page.expected.test(m.text() + m.location().url)) fault(`${step}: console: ${m.text()} ${m.location().url}`); });
	page.on('pageerror', e => fault(`${step}: page error: ${e}`));
	page.on('request', r => { if (!r.url().startsWith(from + '/') && !r.url().startsWith('data:')) fault(`${step}: a request to ${r.url()}`); });
	page.on('dialog', d => { fault(`${step}: a dialog: ${d.message()}`); d.dismiss(); });
	return page;
};

// schemes are the colour schemes of steps that only look at pages: the dark one is for screenshots.
const schemes = process.env.PICTURES ? ['light', 'dark'] : ['light'];

// shoot takes a screenshot if PICTURES is set.
const shoot = async (page, name, options = {}) => {
	if (process.env.PICTURES) await page.screenshot({path: `${shots}/${name}.png`, ...options});
};

const overview = page => page.getByRole('heading', {name: 'Overview'});

// signIn signs in, and waits until the page shows the result: otherwise the next navigation of a
// step could race with that of the form.
const signIn = async (page, {word = password, from = base, result = overview(page)} = {}) => {
	await page.goto(from + '/dashboard/sign-in');
	await page.getByLabel('Password').fill(word);
	await page.getByRole('button', {name: 'Sign in'}).click();
	await result.waitFor();
};

// inspect checks what must hold for every page: accessibility, size, stable layout, no sideways
// scrolling. With a list of rules, axe checks only these.
const inspect = async (page, name, rules) => {
	step = name;
	await page.evaluate(axe);
	const result = await page.evaluate(rules => axe.run(document, {...rules && {runOnly: rules}, resultTypes: ['violations']}), rules);
	for (const v of result.violations) {
		if (['serious', 'critical'].includes(v.impact)) fault(`${name}: axe: ${v.id}: ${v.help}: ${v.nodes.map(n => n.target).join(' ; ').slice(0, 300)}`);
	}
	const {weight, shift, moved, wide} = await page.evaluate(() => new Promise(done => {
		const asked = new Set(); // count only the first request for figures, events or the log, because an open page keeps asking
		const all = [performance.getEntriesByType('navigation')[0], ...performance.getEntriesByType('resource')].filter(e => {
			const what = /\/figures|\/events|requests\/log/.exec(e.name)?.[0];
			return !what || !asked.has(what) && asked.add(what);
		});
		let shift = 0;
		const moved = new Set();
		// Inside the list of events, a new event pushes the others down, and the oldest ones out of the
		// page. The line that says so changes its length. This does not count as a layout shift of the
		// page. A move of the list itself does.
		const tail = e => e.sources.length > 0 && e.sources.every(({node}) => node && (!node.isConnected || node.id === 'events-state' || node.parentElement?.closest('.tail')));
		new PerformanceObserver(list => {
			for (const e of list.getEntries().filter(e => !e.hadRecentInput && !tail(e))) {
				shift += e.value;
				for (const {node, previousRect: from, currentRect: to} of e.sources) moved.add(`${node?.id || node?.className || node?.nodeName} from ${from.x},${from.y} to ${to.x},${to.y}`);
			}
		}).observe({type: 'layout-shift', buffered: true});
		requestAnimationFrame(() => setTimeout(() => done({
			weight: all.reduce((n, e) => n + (e.decodedBodySize || 0), 0), shift, moved: [...moved].join(', '), wide: document.documentElement.scrollWidth > innerWidth,
		}), 50));
	}));
	console.log(`  ${name}: ${(weight / 1024).toFixed(0)} KiB, layout shift ${shift.toFixed(3)}, ${result.violations.length} axe findings`);
	if (weight > 150 * 1024) fault(`${name}: weighs ${weight} bytes`);
	if (shift > 0.05) fault(`${name}: layout shift of ${shift}: ${moved}`);
	if (wide) fault(`${name}: scrolls sideways`);
};

// inspectContrast checks the colours of a page that inspect has checked in another colour scheme:
// nothing else differs.
const inspectContrast = async (page, name) => {
	await page.evaluate(source => { if (!window.axe) (0, eval)(source); }, axe);
	const {violations} = await page.evaluate(() => axe.run(document, {runOnly: ['color-contrast'], resultTypes: ['violations']}));
	for (const v of violations) fault(`${name}: axe: ${v.id}: ${v.nodes.map(n => n.target).join(' ; ').slice(0, 300)}`);
};

const sizes = {'': {width: 1280, height: 900}, '-wide': {width: 2200, height: 1200}, '-phone': {width: 360, height: 740}};

// variants looks at the open page in light and dark, on screens of several sizes. Without PICTURES, it
// looks only at the pages with the most different parts, because every variant takes long.
const variants = async (page, name, suffixes = Object.keys(sizes)) => {
	if (!process.env.PICTURES && !/^(troubled_)?(overview|cluster|stream|keys|stream_raw|key_made)$/.test(name)) return;
	for (const colorScheme of ['light', 'dark']) {
		await page.emulateMedia({colorScheme});
		for (const suffix of suffixes) {
			if (colorScheme === 'dark' && suffix && !process.env.PICTURES) continue;
			await page.setViewportSize(sizes[suffix]);
			const overflow = await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(document.documentElement.scrollWidth - innerWidth)))));
			if (overflow > 0) fault(`${name}${suffix}: scrolls sideways by ${overflow} pixels`);
			if (colorScheme === 'dark' && !suffix) await inspectContrast(page, name + ' in dark');
			await shoot(page, `${name}${suffix}-${colorScheme}`, {fullPage: true});
		}
	}
	await page.emulateMedia({colorScheme: 'light'});
	await page.setViewportSize(sizes['']);
};

// pagesOf returns the paths of all pages of a server. The pages of one stream and of one key are
// missing if the server has none. The page of the cluster is missing if there is no cluster.
const pagesOf = async (page, from, id) => {
	const first = async (path, link) => { // the address that the first link in the table on a page has
		await page.goto(from + path);
		return await page.locator('tbody a' + link).first().getAttribute('href', {timeout: 2000}).catch(() => null);
	};
	const key = await first('/dashboard/keys', '[href^="/dashboard/keys/"]');
	const project = await first('/dashboard/projects', '[href$="/delete"]');
	const one = id ? '/dashboard/streams/' + id : await first('/dashboard/streams', '[href^="/dashboard/streams/"]');
	const isCluster = await page.locator('nav a[href="/dashboard/cluster"]').count() > 0;
	return {
		overview: '/dashboard', overview_day: '/dashboard?span=day', ...isCluster && {cluster: '/dashboard/cluster'}, streams: '/dashboard/streams', stream_new: '/dashboard/streams/new',
		...one && {stream: one, connect: one + '/connect', stream_delete: one + '/delete'}, projects: '/dashboard/projects', ...project && {project_delete: project},
		keys: '/dashboard/keys?revoked=1', key_new: '/dashboard/keys/new', ...key && {key, key_rotate: key + '/rotate'},
		requests: '/dashboard/requests', audit: '/dashboard/audit', account: '/dashboard/account', none: '/dashboard/none',
	};
};

// show opens one of these pages and waits until its plots are drawn.
const show = async (page, from, name, path) => {
	step = path;
	page.expected = name === 'none' ? /status of 404/ : /never/;
	await page.goto(from + path);
	if (/^(overview.*|stream|key)$/.test(name)) await page.locator('[data-drawn]').last().waitFor();
};

const publish = (body, id = stream, secret = key) => fetch(`${base}/v1/streams/${id}/publish`, {
	method: 'POST', headers: {authorization: 'Bearer ' + secret, 'content-type': 'application/json'}, body: JSON.stringify(body),
});

const create = body => fetch(base + '/v1/streams', {method: 'POST', headers: {authorization: 'Bearer ' + key, 'content-type': 'application/json'}, body: JSON.stringify(body)}).then(a => a.json());

const evil = `<img src=x onerror=alert(1)>"'><script>alert(2)</script>`;

const steps = {
	async 'wrong password'(page) {
		page.expected = /status of 401/;
		await signIn(page, {word: 'wrong password', result: page.getByText('Wrong name or password')});
		page.expected = /never/;
	},
	async 'sign in'(page) {
		await page.goto(base + '/');
		await page.waitForURL(/sign-in/);
		await inspect(page, 'sign_in');
		await signIn(page);
		await page.locator('[data-plot] canvas').first().waitFor();
	},
	// Browsers send fewer headers about the origin of a request when the site is neither HTTPS nor
	// loopback.
	async 'sign in over plain HTTP, by host name'() {
		const from = base.replace('127.0.0.1', 'weir.test');
		const page = await open({}, from);
		page.expected = /Cross-Origin-Opener-Policy/; // browsers ignore this header over plain HTTP and report that on the console
		await signIn(page, {from});
		await page.context().close();
	},
	async 'the pointer on one plot shows the values of that moment in all plots'(page) {
		await page.goto(base + '/dashboard');
		await page.locator('[data-drawn]').last().waitFor();
		const box = await page.locator('.plot').first().boundingBox();
		await page.mouse.move(box.x + box.width / 2, box.y + box.height / 3);
		await page.locator('figcaption span').last().getByText('UTC').waitFor();
		const times = new Set(await page.locator('figcaption span').allTextContents());
		assert.equal(times.size, 1, 'the plots show different times: ' + [...times].join(', '));
		assert.match([...times][0], /^\d\d:\d\d \(\d\d:\d\d UTC\)$/);
		await page.mouse.move(0, 0);
	},
	async 'create a project and rename it'(page) {
		await page.getByRole('link', {name: 'Projects'}).click();
		await page.getByRole('textbox', {name: 'Name', exact: true}).fill('shop');
		await page.getByRole('button', {name: 'Create project'}).click();
		await page.getByText('Project shop created.').waitFor();
		await page.getByLabel('New name for shop').fill('store');
		await page.getByRole('button', {name: 'Rename shop'}).click();
		await page.getByText('Project renamed to store.').waitFor();
	},
	async 'create a stream'(page, kept) {
		await page.goto(base + '/dashboard/streams/new');
		await page.getByLabel('Project').selectOption('store');
		await page.getByLabel('Name').fill('orders');
		await page.getByLabel('Retention').fill('59');
		page.expected = /status of 422/;
		await page.getByRole('button', {name: 'Create stream'}).click();
		await page.getByText('Retention must be from 1m to 30d.').waitFor();
		page.expected = /never/;
		await page.getByLabel('Retention').fill('7d');
		await page.getByRole('button', {name: 'Create stream'}).click();
		await page.getByRole('heading', {name: 'orders'}).waitFor();
		kept.stream = new URL(page.url()).pathname.split('/').pop();
	},
	async 'create a key, restricted to the stream'(page, kept) {
		await page.goto(base + '/dashboard/keys/new');
		await page.getByLabel('Project').selectOption('store');
		await page.getByLabel('Name').fill('till');
		await page.getByLabel('manage').uncheck();
		await page.getByLabel('Restrict this key').check();
		await page.getByLabel('Search').fill('ord');
		await page.getByLabel('orders').check();
		await page.getByRole('button', {name: 'Create key'}).click();
		await page.getByText('It is not shown again').waitFor();
		kept.key = await page.locator('#the-key').textContent();
		assert.match(kept.key, /^svc_live_[0-9a-f]{32}$/);
		assert.match(await page.locator('#the-publish').textContent(), new RegExp(`^curl .*${kept.key}.*/v1/streams/${kept.stream}/publish$`));
		await page.getByRole('button', {name: 'Copy key'}).click();
		await page.getByRole('status').getByText('The key was copied.').waitFor({state: 'attached'});
		assert.equal(await page.evaluate(() => navigator.clipboard.readText()), kept.key);
		await inspect(page, 'key_made');
		await picture(page, 'key_made');
		await page.reload();
		assert.equal(await page.getByText(kept.key).count(), 0, 'the key is shown twice');
		kept.keyPage = page.url();
	},
	...eventSteps({base, key, evil, publish, inspect: (...a) => inspect(...a), picture: (...a) => picture(...a), shot: process.env.PICTURES, answered}),
	async 'look up the request'(page, kept) {
		await page.goto(base + '/dashboard/requests');
		await page.getByLabel('Request ID').fill(kept.request);
		await page.keyboard.press('Enter');
		const text = await page.locator('#request').textContent();
		for (const want of [kept.request, 'POST /v1/streams/{id}/publish', '202', 'till', 'orders']) assert.ok(text.includes(want), `the request page does not show ${want}: ${text}`);
		await inspect(page, 'request');
	},
	async 'the request log shows new requests by itself'(page, kept) {
		await page.goto(base + '/dashboard/requests?status=4&stream=' + kept.stream);
		await page.locator('#log-state').getByText('Live.').waitFor();
		await page.getByText('No requests found.').waitFor(); // so that inspect sees whether the page moves when the table appears
		const refused = await fetch(`${base}/v1/streams/${kept.stream}/publish`, {method: 'POST', headers: {authorization: 'Bearer ' + kept.key, 'content-type': 'application/json'}, body: '{'});
		const row = page.locator('[data-part=log] tr').filter({hasText: refused.headers.get('x-request-id')});
		await row.getByText(/^400 invalid_request_error invalid body/).waitFor();
		await row.getByText('127.0.0.1').waitFor();
		await inspect(page, 'request_log');
		await picture(page, 'request_log');
		await page.getByRole('button', {name: 'Pause'}).click();
		await page.locator('#log-state').getByText('Paused.').waitFor();
		await page.getByLabel('Response').selectOption('2xx: success');
		await page.getByRole('button', {name: 'Show'}).click();
		await page.waitForURL(/status=2/);
		assert.equal(await page.getByText(refused.headers.get('x-request-id')).count(), 0, 'the filter lets a refused request through');
	},
	async 'revoking the key ends its subscription and refuses its next request'(page, kept) {
		await page.goto(kept.keyPage);
		await page.evaluate(async ([id, secret]) => {
			const answer = await fetch('/v1/streams/' + id, {headers: {accept: 'text/event-stream', authorization: 'Bearer ' + secret}});
			const reader = answer.body.getReader();
			await reader.read();
			window.over = (async () => { for (;;) if ((await reader.read().catch(() => ({done: true}))).done) return true; })();
		}, [kept.stream, kept.key]);
		page.expected = /INCOMPLETE_CHUNKED|status of 401/;
		const revoke = await page.context().newPage();
		await revoke.goto(kept.keyPage);
		await revoke.getByText('1 open subscription will end').waitFor();
		await revoke.getByLabel('I understand that clients using this key lose access').check();
		await revoke.getByRole('button', {name: 'Revoke key'}).click();
		await revoke.getByText('Key revoked').waitFor();
		assert.ok(await page.evaluate(() => window.over));
		assert.equal((await publish({events: []}, kept.stream, kept.key)).status, 401);
		await revoke.close();
		page.expected = /never/;
	},
	async 'rotate a key'(page) {
		await page.goto(base + '/dashboard/keys');
		await page.getByRole('link', {name: /svc_live_/}).first().click();
		await page.getByRole('link', {name: 'Rotate', exact: true}).click();
		await page.getByRole('button', {name: 'Create new key'}).click();
		await page.getByText('It is not shown again').waitFor();
		await picture(page, 'key_rotate');
		await inspect(page, 'key_rotate');
		await page.getByRole('link', {name: 'Refresh'}).click();
		await page.getByRole('button', {name: 'Revoke old key'}).waitFor();
	},
	async 'every page, while a client publishes'(page, kept) {
		const load = {ends: false};
		if (process.env.PICTURES) kept.shop = (await create({name: 'checkout'})).id; // a picture for the manual needs a stream with a past
		load.done = (async () => {
			for (let i = 0; !load.ends; i++) {
				await publish({events: [{reading: i, celsius: 20 + Math.sin(i), place: 'roof'}]});
				if (kept.shop && i % 40 === 0) await publish({events: [{order: 1000 + i / 40, status: ['placed', 'paid', 'sent'][i / 40 % 3], total: (7.9 + 3.3 * (i / 40 % 7)).toFixed(2)}]}, kept.shop);
				await new Promise(done => setTimeout(done, 20)); // a faster client would push the request of an earlier step out of the log
			}
		})();
		try {
			for (const [name, path] of Object.entries(await pagesOf(page, base, stream))) {
				await show(page, base, name, path);
				if (name === 'stream') await page.locator('tr.event').nth(5).waitFor();
				await inspect(page, name);
				await variants(page, name, ['', '-wide']); // a later step looks at the pages on a phone
			}
		} finally {
			load.ends = true;
			await load.done;
		}
		page.expected = /never/;
	},
	async 'pictures for the manual'(page, kept) {
		if (!process.env.PICTURES) return;
		for (const name of ['deploys', 'page views', 'heartbeats', 'invoices']) {
			const made = await create({name});
			for (let i = 0; i < 4 * name.length; i++) await publish({events: [{name, i}]}, made.id);
		}
		const ends = new AbortController();
		const open = Array.from({length: 59}, () => fetch(`${base}/v1/streams/${stream}`, {signal: ends.signal, headers: {authorization: 'Bearer ' + key, accept: 'text/event-stream'}}));
		await Promise.all(open);
		const narrower = {width: 1024, height: 700};
		for (const colorScheme of ['light', 'dark']) {
			await page.emulateMedia({colorScheme});
			await page.setViewportSize(narrower);
			// take cuts the picture off below the element that the picture is about.
			const take = async (name, path, about, prepare = async () => {}) => {
				await page.goto(base + path);
				await prepare();
				await page.evaluate(() => { document.activeElement.blur(); scrollTo(0, 0); });
				const box = await page.locator(about).boundingBox();
				await page.screenshot({path: `${shots}/manual-${name}${colorScheme === 'dark' ? '-dark' : ''}.png`, fullPage: true, clip: {x: 0, y: 0, width: narrower.width, height: Math.ceil(box.y + box.height) + 10}});
			};
			await take('overview', '/dashboard?span=day', 'figure >> nth=3', () => page.locator('[data-drawn]').last().waitFor());
			await take('streams', '/dashboard/streams', 'table');
			await take('stream', '/dashboard/streams/' + kept.shop, '#events', async () => {
				await page.locator('[data-drawn]').last().waitFor();
				await page.locator('tr.event .toggle').nth(1).click();
				await page.locator('.json .k').first().waitFor();
			});
			await take('keys', '/dashboard/keys?revoked=1', 'table');
			await take('request', '/dashboard/requests?id=' + kept.request, '#request');
			const door = await page.context().browser().newContext({viewport: {width: 640, height: 480}, colorScheme});
			const out = await door.newPage();
			await out.goto(base + '/dashboard/sign-in');
			await out.screenshot({path: `${shots}/manual-sign-in${colorScheme === 'dark' ? '-dark' : ''}.png`});
			await door.close();
		}
		ends.abort();
		await page.emulateMedia({colorScheme: 'light'});
		await page.setViewportSize({width: 1280, height: 900});
	},
	async 'names with HTML are shown as text'(page) {
		await page.goto(base + '/dashboard/projects');
		await page.getByRole('textbox', {name: 'Name', exact: true}).fill(evil);
		await page.getByRole('button', {name: 'Create project'}).click();
		await page.getByRole('status').getByText(evil).waitFor();
		await page.goto(base + '/dashboard/streams/new');
		await page.getByLabel('Project').selectOption(evil);
		await page.getByLabel('Name').fill(evil);
		await page.getByRole('button', {name: 'Create stream'}).click();
		await page.getByRole('heading', {name: evil}).waitFor();
		await page.goto(base + '/dashboard/keys/new');
		await page.getByLabel('Project').selectOption(evil);
		await page.getByLabel('Name').fill(evil);
		await page.getByLabel('Restrict this key').check();
		await page.locator('#choices').getByText(evil).click();
		await page.getByRole('button', {name: 'Create key'}).click();
		await page.getByText('It is not shown again').waitFor();
		for (const path of ['/dashboard/keys/new', '/dashboard/keys', '/dashboard/streams', '/dashboard/audit', '/dashboard?span=' + encodeURIComponent(evil),
			'/dashboard/streams?q=' + encodeURIComponent(evil), '/dashboard/requests?id=' + encodeURIComponent(evil), '/dashboard/sign-in?next=' + encodeURIComponent(evil)]) {
			await page.goto(base + path);
			assert.equal(await page.locator('main img[src=x], main script').count(), 0, path);
		}
	},
	async 'delete a project'(page) {
		await page.goto(base + '/dashboard/projects');
		await page.getByRole('textbox', {name: 'Name', exact: true}).fill('short-lived');
		await page.getByRole('button', {name: 'Create project'}).click();
		await page.getByRole('link', {name: 'Delete short-lived'}).click();
		await page.getByLabel('To confirm, type').waitFor();
		await inspect(page, 'project_delete');
		await picture(page, 'project_delete');
		await page.getByLabel('To confirm, type').fill('short-lived');
		await page.getByRole('button', {name: 'Delete project'}).click();
		await page.getByText('Project short-lived deleted.').waitFor();
	},
	...keyboardSteps({base, password, open, overview}),
	async 'phone-sized pages'() {
		for (const colorScheme of schemes) {
			const page = await open({viewport: {width: 360, height: 740}, colorScheme, deviceScaleFactor: 2});
			await page.goto(base + '/dashboard/sign-in');
			await shoot(page, `sign_in-phone-${colorScheme}`);
			await signIn(page);
			for (const [name, path] of Object.entries(await pagesOf(page, base, stream))) {
				await show(page, base, name, path);
				if (colorScheme === 'light') await inspect(page, name + ' on a phone', ['target-size', 'scrollable-region-focusable', 'color-contrast']); // the rules that depend on the size
				await shoot(page, `${name}-phone-${colorScheme}`, {fullPage: true});
			}
			await page.context().close();
		}
	},
	...stateSteps({open, signIn, inspect, variants, pagesOf, show}),
	...manualSteps({base, open, inspect: (...a) => inspect(...a)}),
	async 'deleting a stream ends its list of events'(page, kept) {
		await page.goto(base + '/dashboard/streams/' + kept.stream);
		await page.locator('#events-state').getByText('Following.').waitFor();
		page.expected = /status of 404/; // the open page still polls the figures
		const other = await page.context().newPage();
		await other.goto(`${base}/dashboard/streams/${kept.stream}/delete`);
		await other.getByLabel('To confirm, type').fill('order');
		await other.getByRole('button', {name: 'Delete stream'}).click();
		await other.getByText('Nothing was deleted').waitFor();
		await other.getByLabel('To confirm, type').fill('orders');
		await other.getByRole('button', {name: 'Delete stream'}).click();
		await other.getByText('Stream orders deleted.').waitFor();
		await page.locator('#events-state').getByText('The stream was deleted.').waitFor();
		await other.close();
		await page.goto(base + '/dashboard');
		page.expected = /never/;
	},
	async 'an expired session leads to the sign-in page and back'(page) {
		await page.goto(`${base}/dashboard/streams/${stream}`);
		await page.locator('#events-state').getByText('Following.').waitFor();
		page.expected = /status of 401/;
		await fetch(base + '/test/advance');
		await page.waitForURL(/sign-in/);
		await page.getByLabel('Password').fill(password);
		await page.getByRole('button', {name: 'Sign in'}).click();
		await page.waitForURL('**/dashboard/streams/' + stream);
		page.expected = /never/;
	},
	async 'sign out'(page) {
		page.expected = /status of 401/; // the page may poll at that moment
		await page.getByRole('button', {name: 'Sign out'}).click();
		await page.waitForURL(/sign-in/);
		await page.goto(base + '/dashboard/keys');
		await page.waitForURL(/sign-in/);
	},
};

// picture takes a screenshot of the page in light and one in dark.
const picture = async (page, name) => {
	if (process.env.PICTURES || /^(stream_raw|key_made)$/.test(name)) await variants(page, name, ['']);
};

const main = await open();
for (const colorScheme of schemes) {
	await main.emulateMedia({colorScheme});
	await main.goto(base + '/dashboard/sign-in');
	await shoot(main, `sign_in-${colorScheme}`);
}
await main.emulateMedia({colorScheme: 'light'});
const kept = {};
try {
	for (const [name, run] of Object.entries(steps)) {
		if (process.env.ONLY && name !== 'sign in' && !name.includes(process.env.ONLY)) continue;
		step = name;
		console.log('== ' + name);
		await run(main, kept);
	}
} catch (e) {
	fault(`${step}: ${e.stack}`);
	await main.screenshot({path: `${shots}/fault.png`, fullPage: true}).catch(() => {});
}
await browser.close();
if (faults.length) process.exitCode = 1;
