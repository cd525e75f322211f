package hub

import "context"

// enterAlone waits until the channel, which has room for one element, is empty, and fills it. It does
// not do so if ctx has ended already: select would choose at random, and a simulation could not be
// repeated.
func enterAlone(ctx context.Context, place chan<- struct{}) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case place <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
