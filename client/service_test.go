package client_test

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"weir"
	"weir/client"
	"weir/internal/build"
	"weir/internal/service/servicetest"
)

// TestMain starts the service that the examples use, and then runs the tests.
func TestMain(m *testing.M) {
	var examples mainTB
	svc := startService(&examples, nil)
	url, key = svc.HTTP, client.Key(svc.Key)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		examples.clean()
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}), goleak.IgnoreCurrent())
}

// mainTB is a testing.TB for TestMain, which gets none from the testing package. It implements the
// methods that servicetest.Start uses.
type mainTB struct {
	testing.TB
	cleanups []func()
}

func (m *mainTB) Helper()           {}
func (m *mainTB) Error(args ...any) { panic(fmt.Sprint(args...)) }
func (m *mainTB) Fatal(args ...any) { panic(fmt.Sprint(args...)) }
func (m *mainTB) Cleanup(f func())  { m.cleanups = append(m.cleanups, f) }

// clean calls the cleanup functions, the last one first.
func (m *mainTB) clean() {
	for _, f := range slices.Backward(m.cleanups) {
		f()
	}
}

// thisBuild is the version that the service reports.
var thisBuild = build.This()

// testService is a running service. Its client method creates clients of the service.
type testService struct {
	*servicetest.Service
	t testing.TB
}

// startService starts a service. If wrap is not nil, it wraps the handler of the service.
func startService(t testing.TB, wrap func(http.Handler) http.Handler) *testService {
	t.Helper()
	return &testService{servicetest.Start(t, servicetest.Options{Wrap: wrap}), t}
}

// address returns the host and port of the service.
func (svc *testService) address() string { return strings.TrimPrefix(svc.HTTP, "http://") }

// client returns a new client. By default it uses the address of the service and a key with all
// permissions.
func (svc *testService) client(o client.Options) *client.Client {
	svc.t.Helper()
	o.URL, o.Key = cmp.Or(o.URL, svc.HTTP), cmp.Or(o.Key, client.Key(svc.Key))
	return newClient(svc.t, o)
}

func newClient(t testing.TB, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// newStream creates a stream with a client. The default name is the name of the test.
func newStream(t testing.TB, c *client.Client, n client.NewStream) weir.StreamID {
	t.Helper()
	if n.Name == "" {
		n.Name = t.Name()
		if len(n.Name) > weir.MaxName {
			n.Name = n.Name[:weir.MaxName]
		}
	}
	s, err := c.CreateStream(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// readEverything reads a stream from its beginning up to its cursor and returns the events. For a
// raw stream, each batch counts as one event.
func readEverything(t testing.TB, c *client.Client, id weir.StreamID) (events []string) {
	t.Helper()
	cursor, err := c.Cursor(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if cursor.Cursor == 0 {
		return nil
	}
	for b, err := range c.Subscriber(id, client.SubscriberOptions{From: client.Oldest}).Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if b.Gap != nil {
			t.Fatalf("unexpected gap from %d to %d", b.Gap.From, b.Gap.To)
		}
		for _, e := range b.Events {
			events = append(events, string(e))
		}
		if b.ContentType != "" {
			events = append(events, string(b.Data))
		}
		if b.Seq >= cursor.Cursor {
			break
		}
	}
	return events
}

// checkNumbers checks that events are the numbers from 1 to n, each once and in order.
func checkNumbers(t testing.TB, events []string, n int) {
	t.Helper()
	if len(events) != n {
		t.Errorf("%d events, want %d", len(events), n)
	}
	for i, e := range events {
		if e != fmt.Sprint(i+1) {
			t.Fatalf("event %d is %s; the events around it are %s", i+1, e, strings.Join(events[max(0, i-3):min(len(events), i+4)], " "))
		}
	}
}
