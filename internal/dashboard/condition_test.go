package dashboard

import "testing"

// A condition compares a value inside an event, as a number if both sides are numbers.
func TestCondition(t *testing.T) {
	const event = `{"status":"paid","order":{"total":120.50,"items":[{"sku":"a"},{"sku":"b"}]},"at":"2026-11-16T10:00:00Z","id":9007199254740993,"ok":true,"none":null,"a.b":1}`
	for text, want := range map[string]bool{
		"status=paid": true, "status = paid": true, "status=sent": false, "status!=sent": true, "status!=paid": false,
		"order.total>100": true, "order.total>120.5": false, "order.total=120.5": true, "order.total<9": false, "order.total<1e3": true,
		"order.items.1.sku=b": true, "order.items.2.sku=b": false, "order.items.x=b": false, "order.items.-1=b": false,
		"at>2026-11-16T09": true, "at<2026-11-16T09": false, "id=9007199254740993": true, "id=9007199254740992": false, "ok=true": true, "none=null": true,
		"missing=1": false, "missing!=1": true, "missing<1": false, "status.deeper=1": false,
	} {
		c, err := parseCondition(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := c.holds([]byte(event)); got != want || got && !c.mayHold([]byte(event)) {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
	for _, event := range []string{`"text"`, `[1]`, `{`, `paid`} {
		if c, _ := parseCondition("status=paid"); c.holds([]byte(event)) {
			t.Errorf("the condition holds for %s", event)
		}
	}
	for event, text := range map[string]string{
		`{"\u0073tatus":"paid"}`: "status=paid",
		`{"a\/b":"paid"}`:        "a/b=paid",
		`{"items":["paid"]}`:     "items.0=paid",
		`["paid"]`:               "0=paid",
	} {
		if c, _ := parseCondition(text); !c.holds([]byte(event)) || !c.mayHold([]byte(event)) {
			t.Errorf("%s does not hold for %s", text, event)
		}
	}
	for _, text := range []string{"", "paid", "=paid", "!"} {
		if _, err := parseCondition(text); err == nil {
			t.Errorf("%q is accepted as a condition", text)
		}
	}
}
