package enginetest

import "context"

// Leaving returns a context that ends at the worst moment: as soon as a call starts to wait on the
// context's Done channel. At this moment the change that the call asked for is in flight and cannot
// be stopped. The values of the context come from ctx.
func Leaving(ctx context.Context) context.Context { return &leaving{ctx, make(chan struct{})} }

type leaving struct {
	context.Context
	left chan struct{}
}

func (l *leaving) Done() <-chan struct{} {
	if l.Err() == nil {
		close(l.left)
	}
	return l.left
}

func (l *leaving) Err() error {
	select {
	case <-l.left:
		return context.Canceled
	default:
		return nil
	}
}
