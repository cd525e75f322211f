package access

import "weir"

// The demo (D22): a built-in project with one stream that everybody may read and nobody may change over the interface.
// None of it is stored; the key is public and printed in the manual.
const (
	DemoStream  weir.StreamID  = "demo000000000000000000"
	DemoKey                    = "svc_test_0123456789abcdef0123456789abcdef"
	DemoKeyID                  = "demo" // what Grant.KeyID of the demo key says
	DemoProject weir.ProjectID = "demoproject00000000000"

	// DemoProjectName is reserved, also while the demo is off, so that switching it on never meets a namesake.
	DemoProjectName = "demo"
)

// demoGrant is a caller who may read the demo stream and nothing else.
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

// DemoReader is the caller without a key, who may read the demo stream; nil while the demo is off.
func (a *Access) DemoReader() *Grant { return a.reader }
