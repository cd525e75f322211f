// The step of run.mjs that uses the keyboard only. The parameter of keyboardSteps has the functions and
// values of run.mjs that the step uses.
import {strict as assert} from 'node:assert';

export const keyboardSteps = ({base, password, open, overview}) => ({
	async 'keyboard only'() {
		const page = await open();
		const inField = () => page.waitForFunction(() => document.activeElement instanceof HTMLInputElement); // wait for autofocus, which takes effect only when the page is drawn
		await page.goto(base + '/dashboard/sign-in');
		await inField();
		await page.keyboard.type(password);
		await page.keyboard.press('Enter');
		await overview(page).waitFor();
		await page.keyboard.press('Tab');
		assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to content');
		await page.keyboard.press('Enter');
		assert.equal(await page.evaluate(() => location.hash), '#main');
		// tabTo presses Tab until the element that has the focus is the wanted one.
		const tabTo = async (what, isThere, {arg, back} = {}) => {
			for (let i = 0; i < 80; i++) {
				await page.keyboard.press(back ? 'Shift+Tab' : 'Tab');
				if (await page.evaluate(isThere, arg)) {
					assert.notEqual(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), 'none', `the focus on ${what} is not visible`);
					return;
				}
			}
			throw new Error(`${what} cannot be reached with Tab`);
		};
		const reach = (name, {back} = {}) => tabTo(name, want => document.activeElement.textContent.trim() === want, {arg: name, back});
		await page.goto(base + '/dashboard');
		await reach('Streams');
		await page.keyboard.press('Enter');
		await page.waitForURL(/streams/);
		await reach('New stream');
		await page.keyboard.press('Enter');
		await page.waitForURL(/new/);
		await inField();
		await page.keyboard.type('by keyboard');
		await page.keyboard.press('Enter');
		await page.getByRole('heading', {name: 'by keyboard'}).waitFor();
		await page.goto(base + '/dashboard');
		await reach('Streams');
		await page.keyboard.press('Enter');
		await page.waitForURL(/streams$/);
		await reach('by keyboard'); // open the stream from the list
		await page.keyboard.press('Enter');
		await page.getByRole('heading', {name: 'by keyboard'}).waitFor();
		await reach('Publish');
		await page.keyboard.press('Enter');
		await page.locator('tr.event').waitFor();
		await tabTo('the button that opens an event', () => document.activeElement.matches('tr.event .toggle'));
		await page.keyboard.press('Enter');
		await page.locator('.json').first().waitFor();
		await reach('Keys', {back: true});
		await page.keyboard.press('Enter');
		await page.waitForURL(/keys/);
		await reach('New key');
		await page.keyboard.press('Enter');
		await page.waitForURL(/new/);
		await inField();
		await page.keyboard.type('by keyboard');
		await tabTo('the permission to manage', () => document.activeElement.parentElement.textContent.trim().startsWith('manage'));
		await page.keyboard.press('Space');
		await reach('Create key');
		await page.keyboard.press('Enter');
		await page.getByText('It is not shown again').waitFor();
		await page.getByText('read, publish on all streams of the project').waitFor();
		await tabTo('the button that copies the key', () => document.activeElement.dataset.copy === 'the-key');
		await page.keyboard.press('Enter');
		await page.getByRole('status').getByText('The key was copied.').waitFor({state: 'attached'});
		await reach('Streams', {back: true});
		await page.keyboard.press('Enter');
		await page.waitForURL(/streams$/);
		await reach('by keyboard');
		await page.keyboard.press('Enter');
		await page.getByRole('heading', {name: 'by keyboard'}).waitFor();
		await reach('Delete');
		await page.keyboard.press('Enter');
		await page.waitForURL(/delete/);
		await inField();
		await page.keyboard.type('by keyboard');
		await page.keyboard.press('Enter');
		await page.getByText('Stream by keyboard deleted.').waitFor();
		await page.context().close();
	},
});
