package dashboard

import (
	"fmt"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
)

// shownSubscribers is the maximum number of subscribers on a stream's page.
const shownSubscribers = 100

// subscriberRow is a subscriber as the page shows it.
type subscriberRow struct {
	api.Subscriber
	Key *access.Key // nil if the subscriber needed no key, or its key is unknown by now
}

// audience is the list of a stream's subscribers on this node.
type audience struct {
	Stream weir.StreamID
	List   []subscriberRow
	All    int // number of subscribers, including those that are not in List
}

func (v *visit) audience(id weir.StreamID) audience {
	list, all := v.API.SubscribersOf(id, shownSubscribers)
	a := audience{Stream: id, All: all}
	for _, s := range list {
		row := subscriberRow{Subscriber: s}
		if k, ok := v.Access.Key(s.KeyID); ok {
			row.Key = &k
		}
		a.List = append(a.List, row)
	}
	return a
}

// endSubscriber ends one subscription.
func (v *visit) endSubscriber() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	page := "/dashboard/streams/" + string(s.ID)
	ended, ok := v.API.EndSubscriber(s.ID, v.r.PathValue("request"))
	if !ok {
		return v.wrong(page, "This subscription has already ended.")
	}
	v.did("subscription ended", fmt.Sprintf("%s %s, key %s, from %s", s.Name(), s.ID, ended.KeyID, ended.From))
	return v.back(page, fmt.Sprintf("The subscription from %s was ended. The client may subscribe again.", ended.From))
}
