package access

import "weir"

// The demo (D22) is a built-in project with one stream, which every client may read and no client
// may change. The project and its key are not stored. The key is public and printed in the manual.
const (
	DemoStream  weir.StreamID  = "demo000000000000000000"
	DemoKey                    = "svc_test_0123456789abcdef0123456789abcdef"
	DemoKeyID                  = "demo" // Grant.KeyID of the demo key
	DemoProject weir.ProjectID = "demoproject00000000000"

	// DemoProjectName is reserved even while the demo is off. Otherwise a project could take it,
	// and switching the demo on would create a conflict.
	DemoProjectName = "demo"
)

// demoGrant returns a grant that may read the demo stream and nothing else.
func demoGrant(keyID string) *Grant {
	return &Grant{
		id:       keyID,
		project:  DemoProject,
		kind:     Test,
		can:      canRead,
		streams:  map[weir.StreamID]struct{}{DemoStream: {}},
		demo:     true,
		demoOpen: true,
		ended:    make(chan struct{}),
	}
}

// DemoReader returns the grant of callers without a key, which may read the demo stream. It is nil
// while the demo is off.
func (a *Access) DemoReader() *Grant { return a.reader }
