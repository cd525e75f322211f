package server

// deepStack is the number of bytes of stack that the goroutine of raiseStacks uses.
const deepStack = 256 << 10

// raiseStacks makes the runtime start goroutines with larger stacks, until end is closed.
//
// net/http starts at least three goroutines for each request over HTTP/2. With 2 KiB of stack, each
// of them soon needs more, and the runtime copies its stack to a larger one. That took a tenth of
// the CPU time of a publish. But the runtime starts new goroutines with as much stack as the average
// goroutine used at the last garbage collection. The goroutine of raiseStacks only sleeps, and uses
// much stack. So on a server with few connections this average is 4 to 16 KiB. With thousands of
// connections, one goroutine hardly changes the average. A stack that is too large for its goroutine
// shrinks at later collections.
func raiseStacks(end <-chan struct{}) { useStack(deepStack/len(stackPart{}), end) }

// stackPart is small enough for the compiler to put a variable of this type on the stack.
type stackPart [32 << 10]byte

// useStack uses this many parts of stack until end is closed.
func useStack(parts int, end <-chan struct{}) byte {
	var used stackPart
	if parts > 1 {
		used[0] = useStack(parts-1, end)
	} else {
		<-end
	}
	return used[len(end)] // without this, the compiler would leave out the variable
}
