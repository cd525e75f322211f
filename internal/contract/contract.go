// Package contract is the black-box test suite of the HTTP interface. Given an address and keys, it
// checks the specification sentence by sentence, and every decision that a client can observe. The
// suite uses only the server's responses, so it runs against any server: with any engine, over any
// version of HTTP, in a process that a test started or in a deployment.
//
// Each case states what it checks: it quotes the specification, or it summarises a decision. D1, D2
// and so on are the numbers of the decisions in docs/decisions.md. Each case creates its own
// streams and deletes them at the end. Cases do not sleep: they wait for the expected effect, up to
// a deadline.
package contract

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Target is the service that the suite checks.
type Target struct {
	BaseURL string              // {base_url} of the specification, without a slash at the end
	Client  func() *http.Client // creates a client for the protocol to test; nil for HTTP/1.1

	Live      string // live key with all permissions on its whole project
	OtherLive string // live key of another project, also with all permissions
	Test      string // test key of Live's project

	// NewKey creates a key of Live's project and returns a function that revokes it. If NewKey is
	// nil, the cases about scopes and revocation are skipped.
	NewKey func(t testing.TB, k Key) (key string, revoke func())

	// NewToken creates a management token and returns a function that revokes it. If NewToken is nil,
	// the cases about /manage/v1 are skipped.
	NewToken func(t testing.TB) (token string, revoke func())

	Demo     bool          // the service runs the demo stream
	GapGrace time.Duration // --gap-grace of the service; 0 for the default of 2 s
	DocBase  string        // prefix of doc_url; if empty, BaseURL is the prefix
	Slow     bool          // also run the cases that take longer than a minute
	Light    bool          // skip the cases that need much CPU, which RunHeavy runs
	Spread   bool          // requests go to several nodes of a cluster; their rate-limit counts may differ for a moment
	Apart    bool          // the node may lose contact with its store, so a response with 503 is not a fault
	Limits   Limits        // the limits that RunLimits uses up
}

// Key describes a key to create.
type Key struct {
	Kind        string   // live or test
	Permissions []string // any of read, publish and manage; empty for all three
	Streams     []string // ids of the only streams that the key may use; empty for all streams of the project
}

// Limits are the limits that the service was started with. RunLimits sends as many requests as it
// takes to reach each limit, so the limits must be small.
type Limits struct {
	Live, Test, Demo, Anonymous int // requests per minute
	StreamsPerProject           int
	Subscribers                 int
	Heartbeat                   time.Duration
}

// Case checks one statement of the contract.
type Case struct {
	Name string
	Says string // the statement that the case checks; a failing case logs it
	Run  func(t *T)
}

// subject is a group of cases.
type subject struct {
	name  string
	cases []Case
	alone bool // run the cases one at a time, because they use up a limit that all of them share
}

// nodeLocal lists the subjects in which a node answers requests without asking the other nodes of
// its cluster. Spreading these requests over several nodes tests nothing new, and they need most of
// the suite's CPU time. If Target.Spread is set, these subjects run only if Target.Slow is set too.
var nodeLocal = []string{"bodies", "sizes", "wire", "order", "routes", "errors", "cors"}

// heavy lists the cases that need much CPU.
var heavy = []string{"many small values", "many keys", "a backlog larger than the cache"}

// Run checks everything that a service must do while it stays below its limits. RunLimits checks
// the limits.
func Run(t *testing.T, target Target) {
	run(t, target, []subject{
		{"basics", basicCases, false},
		{"streams", streamCases, false},
		{"create", createCases, false},
		{"change", changeCases, false},
		{"delete", deleteCases, false},
		{"close", closeCases, false},
		{"lifetime", lifetimeCases, false},
		{"paging", pagingCases, false},
		{"publish", publishCases, false},
		{"sequences", sequenceCases, false},
		{"gaps", gapCases, false},
		{"contiguous", contiguousCases, false},
		{"idempotency", idempotencyCases, false},
		{"bodies", bodyCases, false},
		{"sizes", sizeCases, false},
		{"batches", batchCases, false},
		{"pages", pageCases, false},
		{"eviction", evictionCases, false},
		{"subscribe", subscribeCases, false},
		{"delivery", deliveryCases, false},
		{"compress", compressCases, false},
		{"wire", wireCases, false},
		{"auth", authCases, false},
		{"order", orderCases, false},
		{"scopes", scopeCases, false},
		{"manage", manageCases, false},
		{"routes", routeCases, false},
		{"errors", errorCases, false},
		{"cors", corsCases, false},
		{"rate", rateCases, false},
		{"demo", demoCases, true},
	})
}

// RunHeavy checks the cases that need much CPU, and nothing else.
func RunHeavy(t *testing.T, target Target) {
	var cases []Case
	for _, c := range slices.Concat(sizeCases, deliveryCases) {
		if slices.Contains(heavy, c.Name) {
			cases = append(cases, c)
		}
	}
	if len(cases) != len(heavy) {
		t.Fatalf("found %d heavy cases, want %d", len(cases), len(heavy))
	}
	run(t, target, []subject{{"heavy", cases, false}})
}

// RunLimits checks what a service does at its limits. The service must run with target.Limits.
func RunLimits(t *testing.T, target Target) {
	run(t, target, []subject{{"limits", limitCases, true}})
}

func run(t *testing.T, target Target, subjects []subject) {
	whole := NewT(t, target)
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			if target.Spread && !target.Slow && slices.Contains(nodeLocal, s.name) {
				t.Skip("a node answers these requests without other nodes, so the case runs only with Target.Slow")
			}
			for _, c := range s.cases {
				t.Run(c.Name, func(t *testing.T) {
					if target.Light && slices.Contains(heavy, c.Name) {
						t.Skip("this case needs much CPU; RunHeavy runs it")
					}
					if !s.alone {
						t.Parallel()
					}
					t.Cleanup(func() {
						if t.Failed() {
							t.Logf("the contract says: %s", c.Says)
						}
					})
					c.Run(&T{T: t, Target: whole.Target, common: whole.common})
				})
			}
		})
	}
}

// NewT returns a T that sends requests to target. It replaces empty fields of target by their
// defaults, and loads the service's description of its interface, /openapi.json.
func NewT(t *testing.T, target Target) *T {
	target.BaseURL = strings.TrimSuffix(target.BaseURL, "/")
	if target.DocBase == "" {
		target.DocBase = target.BaseURL
	}
	if target.GapGrace == 0 {
		target.GapGrace = 2 * time.Second
	}
	if target.Client == nil {
		target.Client = HTTP1
	}
	shared := &common{client: target.Client()}
	t.Cleanup(shared.client.CloseIdleConnections)
	shared.description = describe(t, shared.client, target.BaseURL)
	return &T{T: t, Target: target, common: shared}
}

// common is shared by all cases of a run.
type common struct {
	client      *http.Client
	description *description
	requestIDs  sync.Map // all request ids seen so far, to find an id that is used twice
}

// T is a running case: a test that can send requests to its target. The methods that send requests
// fail the test if a response breaks a rule that holds for every response.
type T struct {
	*testing.T
	Target
	*common
}

// Patience is how long a case waits for an effect that should come at once. It is long because the
// machine may be busy.
const Patience = 20 * time.Second

// Eventually calls the function condition every 20 ms until it returns true. If that takes longer
// than limit, the test fails with a message that contains the description.
func Eventually(t testing.TB, limit time.Duration, description string, condition func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("did not happen within %v: %s", limit, description)
		}
	}
}
