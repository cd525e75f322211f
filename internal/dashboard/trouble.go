package dashboard

import (
	"fmt"
	"maps"
)

// Trouble is something that is wrong with the server. Every page shows it at the top.
type Trouble struct {
	Kind   string // identifies the trouble, for example TroubleFull
	Bad    bool   // clients are affected now; otherwise it is a warning
	State  string // a sentence: what is wrong
	Reason string // sentences: why, and what it means for clients
	Remedy string // sentences: what the operator can do
}

// TroubleFull is the Kind of a store that has no space.
const TroubleFull = "full"

// The meter of the disk is yellow if more than the share diskHigh is used, and red above
// diskVeryHigh. Above diskVeryHigh every page warns too, unless diskPlenty bytes are free.
const (
	diskHigh     = 0.8
	diskVeryHigh = 0.9
	diskPlenty   = 50 << 30
)

// troubles returns everything that is wrong, worst first.
func (o *Options) troubles() []Trouble {
	all, store := o.Troubles(), o.Store()
	isFull := false
	for _, t := range all {
		isFull = isFull || t.Kind == TroubleFull
	}
	if store.Scrub != nil && len(store.Scrub.Damaged) > 0 {
		all = append(all, Trouble{
			Kind: "damaged", Bad: true, State: "Stored data is damaged.", Reason: "The scrub found data that cannot be read. The overview lists it.",
			Remedy: "Keep the backups that have an intact copy, and check the disk.",
		})
	}
	if used := store.Size - store.Free; !isFull && store.Size > 0 && store.Free < diskPlenty && float64(used) >= diskVeryHigh*float64(store.Size) {
		all = append(all, Trouble{
			Kind: "nearly full", State: "The disk is nearly full.",
			Reason: fmt.Sprintf("%s of %s are free. When the disk is full, the server refuses to publish and to create streams.", bytesText(store.Free), bytesText(store.Size)),
			Remedy: "Free space on the disk, delete streams, or use a larger disk.",
		})
	}
	return all
}

// addTrouble adds the banner that lists the troubles to the parts of a page that its script
// replaces.
func addTrouble(parts map[string]string, all []Trouble) error {
	banner, err := fragments("overview", all, []string{"trouble"})
	maps.Copy(parts, banner)
	return err
}
