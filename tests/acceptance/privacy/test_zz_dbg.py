from tests.acceptance.privacy.test_twenty_secrets import *
import json
def test_dbg(watch):
    said={}
    orig=watch._run
    def run(*c):
        s=orig(*c); said[' '.join(c)]=s; return s
    watch._run=run
    live(watch)
    found=watch.look()
    with open('/tmp/dbg.json','w') as f: json.dump(found,f,indent=1)
    with open('/tmp/dbg.txt','wb') as f:
        for c,s in said.items(): f.write(b"\n##### kfm "+c.encode()+b"\n"+s)
