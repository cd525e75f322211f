// The page of the cluster updates itself.
import {ask, every, fill} from './shared.js';

every(2000, async () => fill((await ask('/dashboard/cluster/figures')).parts));
