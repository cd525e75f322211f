// The steps that read the manual: search, copy buttons, and pages without JavaScript.
import {strict as assert} from 'node:assert';

export const manualSteps = ({base, open, inspect}) => ({
	async 'search the manual with the keyboard'() {
		const page = await open();
		await page.goto(base + '/docs/concepts');
		await inspect(page, 'manual');
		await page.keyboard.press('/');
		await page.keyboard.type('rotate keys');
		const links = page.locator('form[role=search] a');
		await links.filter({hasText: 'Revoke and rotate'}).waitFor();
		const {violations} = await page.evaluate(() => axe.run(document, {resultTypes: ['violations']}));
		assert.deepEqual(violations.filter(v => ['serious', 'critical'].includes(v.impact)).map(v => v.id), []);
		await page.keyboard.press('ArrowDown');
		assert.match(await page.evaluate(() => document.activeElement.textContent), /Revoke and rotate/);
		await page.keyboard.press('Escape');
		await links.first().waitFor({state: 'hidden'});
		assert.equal(await page.evaluate(() => document.activeElement.value), 'rotate keys');
		await page.keyboard.press('Enter');
		await page.waitForURL('**/docs/keys#revoke-and-rotate');
		await page.getByRole('searchbox').fill('(no-such*word');
		await page.getByRole('status').getByText('Nothing found').waitFor();
		await page.getByRole('searchbox').fill('x-ratelimit-reset');
		await links.first().waitFor();
		await page.locator('form[role=search] ul').click({position: {x: 1, y: 1}});
		assert.ok(await links.first().isVisible(), 'a click beside a result hides the list');
		await page.getByRole('searchbox').fill('');
		await links.first().waitFor({state: 'hidden'});
		await page.keyboard.press('Enter');
		await page.getByRole('searchbox').fill('grace period'); // by now, Enter would have opened a page
		await links.first().waitFor();
		assert.match(page.url(), /\/docs\/keys#revoke-and-rotate$/);
		await page.context().close();
	},
	async 'copy a block of the manual'() {
		const page = await open();
		await page.goto(base + '/docs/publishing');
		const blocks = page.locator('figure.code');
		await blocks.getByRole('button').first().waitFor();
		assert.equal(await blocks.getByRole('button').count(), await blocks.count(), 'a block has no copy button');
		await blocks.first().getByRole('button', {name: 'Copy (shell)'}).click();
		await blocks.first().getByRole('button', {name: 'Copied'}).waitFor();
		assert.equal(await page.evaluate(() => navigator.clipboard.readText()), (await blocks.first().locator('code').textContent()).trimEnd());
		await page.context().close();
	},
	async 'drawings of the manual are not cropped'() {
		for (const width of [1280, 360]) {
			const page = await open({viewport: {width, height: 900}});
			for (const path of ['/docs', '/docs/concepts']) {
				await page.goto(base + path);
				const {drawings, outside} = await page.evaluate(() => {
					const drawings = [...document.querySelectorAll('svg.drawing')];
					const outside = drawings.flatMap(svg => [...svg.querySelectorAll('text, rect, path')].filter(shape => {
						const {x, y, width, height} = shape.getBBox(), {width: right, height: bottom} = svg.viewBox.baseVal;
						return x < 0 || y < 0 || x + width > right || y + height > bottom;
					}).map(shape => shape.outerHTML));
					return {drawings: drawings.length, outside};
				});
				assert.ok(drawings > 0, `${path} has no drawing`);
				assert.deepEqual(outside, [], `${path} at a width of ${width}`);
			}
			await page.context().close();
		}
	},
	async 'the manual without JavaScript'() {
		const page = await open({javaScriptEnabled: false});
		await page.goto(base + '/docs/concepts');
		assert.equal(await page.getByRole('button').count(), 0, 'a button that does nothing');
		await page.getByRole('searchbox').fill('keys');
		await page.keyboard.press('Enter');
		await page.waitForURL('**/docs/search?q=keys');
		await page.getByRole('main').getByRole('link', {name: 'Revoke and rotate'}).click();
		await page.waitForURL('**/docs/keys#revoke-and-rotate');
		await page.context().close();
	},
});
