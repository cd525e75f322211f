// The steps of run.mjs that are about the event browser of a stream's page. The parameter of
// eventSteps has the functions and values of run.mjs that the steps use.
import {strict as assert} from 'node:assert';

export const eventSteps = ({base, key, evil, publish, inspect, picture, shot, answered}) => {
	const create = body => fetch(base + '/v1/streams', {method: 'POST', headers: {authorization: 'Bearer ' + key, 'content-type': 'application/json'}, body: JSON.stringify(body)}).then(a => a.json());
	const remove = id => fetch(base + '/v1/streams/' + id, {method: 'DELETE', headers: {authorization: 'Bearer ' + key}});
	const state = (page, text) => page.locator('#events-state').getByText(text).waitFor();
	// record keeps every text that the state of the list ever shows, because the next poll may replace
	// a text before a step has waited for it. recorded waits until the state has shown a text.
	const record = page => page.evaluate(() => {
		const state = document.querySelector('#events-state');
		window.states = [state.textContent];
		new MutationObserver(() => window.states.push(state.textContent)).observe(state, {childList: true, characterData: true, subtree: true});
	});
	const recorded = (page, text) => page.waitForFunction(text => window.states.some(s => s.includes(text)), text);
	const row = (page, text) => page.locator('tr.event').filter({hasText: text});
	const look = (page, hidden) => page.evaluate(hidden => {
		Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
		document.dispatchEvent(new Event('visibilitychange'));
	}, hidden);
	// searched continues a search, which pauses after a while, until all batches are searched.
	const searched = async (page, text) => {
		for (;;) {
			const said = await (await page.waitForFunction(() => /match/.test(document.querySelector('#events-state').textContent) && !/searching/.test(document.querySelector('#events-state').textContent) && document.querySelector('#events-state').textContent)).jsonValue();
			if (said.includes('all searched')) return assert.ok(said.includes(text), said);
			await page.locator('#events-older').click();
		}
	};
	// measure calls f and reports how long the main thread of the page was busy meanwhile, and how
	// much memory its objects take.
	const measure = async (page, name, f) => {
		const devtools = await page.context().newCDPSession(page);
		await devtools.send('Performance.enable', {timeDomain: 'threadTicks'}); // processor time, which does not depend on what else this machine does
		const read = async () => Object.fromEntries((await devtools.send('Performance.getMetrics')).metrics.map(m => [m.name, m.value]));
		const before = await read(), begun = Date.now();
		await f();
		await page.evaluate(() => new Promise(done => requestAnimationFrame(() => setTimeout(done))));
		const after = await read();
		const nodes = await page.evaluate(() => document.querySelectorAll('*').length);
		const split = ['ScriptDuration', 'LayoutDuration', 'RecalcStyleDuration'].map(n => n.slice(0, -8) + ' ' + ((after[n] - before[n]) * 1000).toFixed(0)).join(', ');
		console.log(`  ${name}: main thread ${((after.TaskDuration - before.TaskDuration) * 1000).toFixed(0)} ms, ${Date.now() - begun} ms in all, ${split}, heap ${(after.JSHeapUsedSize / 1048576).toFixed(1)} MiB, ${nodes} elements`);
		await devtools.detach();
		return nodes;
	};

	return {
		async 'follow a stream while a key publishes'(page, kept) {
			await page.goto(base + '/dashboard/streams/' + kept.stream);
			await state(page, 'Following.');
			const answer = await publish({events: [{order: 1, note: evil, big: 1}]}, kept.stream, kept.key);
			assert.equal(answer.status, 202);
			kept.request = answer.headers.get('x-request-id');
			await row(page, '"order":1').waitFor();
			assert.ok((await row(page, '"order":1').textContent()).includes('<img src=x onerror=alert(1)>'), 'the payload is not shown literally');
			// Large numbers are shown as they were published, not rounded.
			await fetch(`${base}/v1/streams/${kept.stream}/publish`, {method: 'POST', headers: {authorization: 'Bearer ' + kept.key, 'content-type': 'application/json'}, body: '{"events":[9007199254740993,{"a":{"b":[1,true,null]}}]}'});
			await row(page, '9007199254740993').waitFor();
			await page.getByRole('button', {name: 'Event 2.1'}).click();
			await page.locator('.json .b').getByText('true').waitFor();
			assert.equal(await page.locator('.json details').count(), 3, 'objects and arrays that can be folded');
			await page.locator('.json summary').nth(1).click(); // fold "a"
			await page.locator('.json .b').getByText('true').waitFor({state: 'hidden'});
			await page.getByRole('button', {name: 'Copy', exact: true}).click();
			await page.getByRole('status').getByText('The event was copied.').waitFor({state: 'attached'});
			assert.equal(await page.evaluate(() => navigator.clipboard.readText()), '{"a":{"b":[1,true,null]}}');
			await page.getByRole('button', {name: 'Copy link'}).click();
			await page.getByRole('status').getByText('The link was copied.').waitFor({state: 'attached'});
			const link = await page.evaluate(() => navigator.clipboard.readText());
			await page.getByLabel('Show as').selectOption('Hex');
			await page.getByText('7b 22 61 22').waitFor();
			await inspect(page, 'event open');
			await picture(page, 'event_open');
			// Following after a pause misses nothing.
			await page.getByRole('button', {name: 'Pause'}).click();
			await publish({events: ['while paused']}, kept.stream, kept.key);
			await state(page, 'Paused, 1 batch behind.');
			await page.getByRole('button', {name: 'Follow'}).click();
			await row(page, 'while paused').waitFor();
			assert.equal(await page.locator('tr.event').count(), 4);
			// A link leads to its event and opens it.
			await page.goto(link);
			await page.locator('.json .b').getByText('true').waitFor();
			await state(page, 'Paused.');
			await page.getByRole('button', {name: 'Follow'}).click();
			await state(page, 'Following.');
			// The form publishes test events.
			await page.getByLabel('Body').fill('{"events":[');
			page.expected = /status of 400/;
			await page.getByRole('button', {name: 'Publish'}).click();
			await page.getByText('Refused:').waitFor();
			page.expected = /never/;
			await page.getByLabel('Body').fill('{"events":["by hand"]}');
			await page.getByRole('button', {name: 'Publish'}).click();
			await page.getByText('Published with sequence number 4.').waitFor();
			await row(page, 'by hand').waitFor();
			assert.equal(await page.locator('[data-value=cursor]').textContent(), '4');
		},
		async 'a hidden page asks for nothing, and shows the newest events when it is visible again'(page, kept) {
			await page.goto(base + '/dashboard/streams/' + kept.stream);
			await row(page, 'by hand').waitFor();
			await look(page, true);
			await answered(page); // a request that is under way would show some of the events
			for (let i = 0; i < 130; i++) await publish({events: ['while hidden ' + i]}, kept.stream, kept.key);
			await record(page);
			await look(page, false);
			await row(page, 'while hidden 129').waitFor();
			await page.getByText('Too many events to show: 30 batches left out, 5 to 34.').waitFor();
			await recorded(page, 'Following. The stream is too fast: 30 batches left out.');
			assert.equal(await page.locator('[data-value=cursor]').textContent(), '134');
			await page.getByRole('button', {name: 'Show these'}).click();
			await row(page, 'while hidden 0').waitFor();
			await row(page, 'by hand').waitFor();
			// The page shows why the server refused a request, and names the field with a wrong
			// value.
			page.expected = /status of 503/;
			await page.route('**/events?*', route => route.fulfill({status: 503, contentType: 'application/json', body: '{"error":{"code":"overloaded","message":"this server is full"}}'}));
			await page.getByRole('button', {name: 'Oldest'}).click();
			await state(page, 'The server refused: this server is full.');
			await page.unroute('**/events?*');
			page.expected = /never/;
			await page.getByLabel('Go to').fill('x');
			await page.keyboard.press('Enter');
			await state(page, 'Go to: not a sequence number and not a time.');
			await page.getByLabel('Go to').fill('4');
			await page.keyboard.press('Enter');
			await page.locator('tr.found').getByText('by hand').waitFor();
		},
		async 'an open page updates itself, and says when it cannot'(page) {
			const made = await create({name: 'kept open'});
			const at = seq => fetch(`${base}/v1/streams/${made.id}/${seq}`, {method: 'POST', headers: {authorization: 'Bearer ' + key, 'content-type': 'application/json'}, body: '{"events":[1]}'});
			await page.goto(base + '/dashboard/streams/' + made.id);
			await page.getByText('nothing published yet').waitFor();
			await state(page, 'Following.');
			const subscribed = new AbortController();
			const subscription = await fetch(`${base}/v1/streams/${made.id}`, {headers: {authorization: 'Bearer ' + key, accept: 'text/event-stream'}, signal: subscribed.signal});
			assert.equal(subscription.status, 200);
			await page.locator('[data-part=audience] form').waitFor(); // the list of subscribers changes while the page follows the stream
			subscribed.abort();
			await page.locator('[data-part=audience] form').waitFor({state: 'detached'});
			await at(0); // the very first batch has sequence 0, and the list shows it
			await page.locator('tr.event a').getByText('0', {exact: true}).waitFor();
			await at(1);
			await at(4);
			await page.locator('[data-part=updated]').getByText('just now').waitFor();
			await page.getByText('Sequences 2 to 3 are not stored.').waitFor(); // 4 is listed, although it is above an open gap
			await page.getByRole('region', {name: 'Gaps'}).getByText(/filled/).waitFor();
			await page.locator('[data-part=object]').getByText('"cursor": 4').waitFor();
			await at(2);
			await at(3);
			await page.getByText('Sequences 2 to 3 are not stored.').waitFor({state: 'detached'});
			await page.goto(base + '/dashboard');
			await page.locator('[data-drawn]').last().waitFor();
			const refused = await fetch(base + '/v1/streams/none', {headers: {authorization: 'Bearer ' + key}});
			await page.locator('[data-part=problems]').getByText(refused.headers.get('x-request-id')).waitFor();
			page.expected = /ERR_/;
			await page.route('**/dashboard/figures*', route => route.abort());
			await page.getByText(/No response from the server since /).waitFor();
			await inspect(page, 'stale');
			await picture(page, 'stale');
			await page.unroute('**/dashboard/figures*');
			await page.locator('#stale:empty').waitFor({state: 'attached'});
			page.expected = /never/;
			await remove(made.id);
		},
		async 'events of a raw stream are shown in hex, and the page says which one was evicted'(page) {
			await page.goto(`${base}/dashboard/streams/${process.env.RAW}?at=1`);
			await state(page, /Sequence 1 is not stored. The next event is \d+\./);
			await row(page, 'ff 00 68 69').first().waitFor();
			await page.locator('tr.event .toggle').first().click();
			await page.getByText(/00000000 {2}ff 00 68/).waitFor();
			await page.getByRole('button', {name: 'Next part'}).click();
			await page.getByText(/00001000 {2}00/).waitFor();
			await picture(page, 'stream_raw');
			await inspect(page, 'stream_raw');
			await page.getByLabel('Show as').selectOption('Text');
			await page.locator('.value pre').getByText('hi<b>').waitFor();
		},
		async 'browse 100,000 batches'(page) {
			const at = base + '/dashboard/streams/' + process.env.BIG;
			const most = [await measure(page, 'open a stream of 100,000 batches', async () => {
				await page.goto(at);
				await row(page, 'order 100000').waitFor();
			})];
			assert.equal(await page.locator('[data-value=batches]').textContent(), '100\u202f001');
			most.push(await measure(page, 'search 100,000 batches for a word in three of them', async () => {
				await page.getByLabel('Search').fill('NEEDLE');
				await page.keyboard.press('Enter');
				await searched(page, '3 matches in 100\u202f001 batches of 100\u202f001');
			}));
			await row(page, 'needle 50000').waitFor();
			await inspect(page, 'search');
			await page.getByLabel('Search').fill('');
			most.push(await measure(page, 'search 100,000 batches with a condition', async () => {
				await page.getByLabel('Where').fill('name=order 77777');
				await page.keyboard.press('Enter');
				await searched(page, '1 match in 100\u202f001 batches of 100\u202f001');
			}));
			await page.getByLabel('Where').fill('');
			most.push(await measure(page, 'go to a sequence', async () => {
				await page.getByLabel('Go to').fill('50000');
				await page.keyboard.press('Enter');
				await page.locator('tr.found').getByText('order 50000').waitFor();
			}));
			most.push(await measure(page, 'scroll through 800 events', async () => {
				for (let low = 49900; low > 49200; low -= 100) {
					await row(page, `order ${low}"`).waitFor({state: 'attached'});
					await page.locator('#events').evaluate(box => { box.scrollTop = box.scrollHeight; });
				}
			}));
			assert.ok(await page.locator('tr.event').count() <= 500, 'more than 500 rows are in the page');
			await page.getByLabel('Go to').fill('100001');
			await page.keyboard.press('Enter');
			await page.locator('tr.found').waitFor();
			most.push(await measure(page, 'open an event of 8 MiB', async () => {
				await page.locator('tr.found .toggle').click();
				await page.getByText('the first 64.0 KiB of 8.0 MiB').waitFor();
				await page.locator('.json .k').getByText('"a0"').waitFor();
			}));
			most.push(await measure(page, 'load all of an event of 8 MiB', async () => {
				await page.getByRole('button', {name: 'Load all 8.0 MiB'}).click();
				await page.getByRole('button', {name: 'Load all 8.0 MiB'}).waitFor({state: 'hidden'});
			}));
			await inspect(page, 'large event');
			assert.ok(Math.max(...most) < 20000, `the page has up to ${Math.max(...most)} elements`);
			if (shot) await picture(page, 'stream_large');
		},
	};
};
